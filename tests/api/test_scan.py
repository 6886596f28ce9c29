"""Records in physical order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketstore._native.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.records import records
from tests.support.made_store import MadeStore, rocketmq_store


@pytest.fixture
def segments() -> Iterator[Callable[[Path], list[MappedFile]]]:
    opened: list[MappedFile] = []

    def open_all(root: Path) -> list[MappedFile]:
        found = sorted((root / "commitlog").iterdir())
        files = [MappedFile.open(p, int(p.name), p.stat().st_size, "read") for p in found]
        opened.extend(files)
        return files

    yield open_all
    for file in opened:
        file.close()


Opener = Callable[[Path], list[MappedFile]]


@pytest.mark.parametrize("name", ["clean-498", "delay-transactions-498", "long-topics-533"])
def test_every_record_of_a_store_comes_in_order(
    name: str, tmp_path: Path, segments: Opener
) -> None:
    root, expected = rocketmq_store(name, tmp_path)
    files = segments(root)
    found = [m.physical_offset for m in records(files, 0, files[-1].end_offset, verify=3)]
    assert found == sorted(row["physical_offset"] for row in expected["acked"])


def test_records_begin_and_end_where_they_are_told(tmp_path: Path, segments: Opener) -> None:
    made = MadeStore(tmp_path / "store")
    put = made.fill(60)
    found = records(segments(made.root), put[7].physical_offset, put[50].physical_offset)
    assert [m.queue_offset for m in found] == list(range(7, 50))


def test_a_lost_blank_is_stepped_over(tmp_path: Path, segments: Opener) -> None:
    """Format 15.4: zeros to the end of a file that has a successor."""
    made = MadeStore(tmp_path / "store")
    put = made.fill(60)
    last = max(r.physical_offset + r.size for r in put if r.physical_offset < 4096)
    made.write_log(last, b"\0" * 8)
    assert len(list(records(segments(made.root), 0, made.end))) == 60


def test_what_is_no_record_is_an_error(tmp_path: Path, segments: Opener) -> None:
    made = MadeStore(tmp_path / "store")
    put = made.fill(5)
    made.write_log(put[3].physical_offset + 88, b"\xff")
    stream = records(segments(made.root), 0, made.end, verify=3)
    assert [next(stream).queue_offset for _ in range(3)] == [0, 1, 2]
    with pytest.raises(CorruptRecordError) as caught:
        next(stream)
    assert caught.value.physical_offset == put[3].physical_offset


def test_the_end_of_the_log_ends_the_records(tmp_path: Path, segments: Opener) -> None:
    made = MadeStore(tmp_path / "store")
    made.fill(5)
    files = segments(made.root)
    assert len(list(records(files, 0, files[-1].end_offset))) == 5
