"""When a flush or a commit is due, and what the parts of a log are made of."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.os.mapping import mapped_files
from rocketstore.log.commitlog.committer import PAGE_BYTES, able, pages_between

pytestmark = pytest.mark.quick

SEGMENT = 1 << 20


def test_a_page_is_four_kibibytes() -> None:
    """S004-07: pages of flushing and committing are 4096 bytes, whatever the machine's are."""
    assert PAGE_BYTES == 4096
    assert [pages_between(0, n) for n in (0, 4095, 4096, 8193)] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("low", "high", "due"),
    [
        (0, 4 * 4096 - 1, False),
        (0, 4 * 4096, True),  # greater or equal
        (4095, 4 * 4096, True),
        (4096, 4 * 4096, False),
        (4096, 5 * 4096 - 1, False),
    ],
)
def test_enough_pages_have_to_be_dirty(low: int, high: int, due: bool) -> None:
    """S000-83 S000-88 S000-93: page numbers are compared, so the first page may be half done."""
    assert able(low, high, 4, SEGMENT) is due


def test_no_least_number_of_pages_takes_anything() -> None:
    """S002-33: with least pages 0 one byte is enough, and nothing is nothing."""
    assert able(0, 1, 0, SEGMENT)
    assert able(100, 101, 0, SEGMENT)
    assert not able(0, 0, 0, SEGMENT)
    assert not able(100, 100, 0, SEGMENT)


def test_a_full_file_is_always_due() -> None:
    """S000-88 S000-93: the end of a file does not wait for more pages."""
    assert able(SEGMENT - 10, SEGMENT, 4, SEGMENT)
    assert able(SEGMENT - 4096, SEGMENT + 1, 4, SEGMENT)
    assert able(SEGMENT - 10, SEGMENT + 1, 1000, SEGMENT)


def test_log_queues_and_index_are_mapped_files(
    tmp_path: Path, small_config: rocketstore.StoreConfig
) -> None:
    """S004-01: log, consume queue and index are read and written through the same class."""
    gc.collect()  # what earlier tests left must not go meanwhile
    mapped = mapped_files()
    with rocketstore.open(tmp_path / "store", config=small_config) as store:
        store.writer("orders", queue_id=0).put(b"x", keys="k")
        assert [m.body for m in store.query("orders", key="k")] == [b"x"]
        names = {f.parts[len(tmp_path.parts) + 1] for f in files_of(tmp_path)}
        assert names >= {"commitlog", "consumequeue", "index"}
        assert mapped_files() >= mapped + 3


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
