"""A log that is not there, or not all of it, is an error for whoever reads, and never an empty one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore import CorruptRecordError, MissingSegmentsError
from tests.corruption.missing_logs import MISSING, SEGMENT_BYTES, unmount
from tests.support.small_store import dispatched, segments

COUNT = 300


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with rocketstore.open(
        root, durability="os", commit_log_file_size_bytes=SEGMENT_BYTES, index_enabled=False
    ) as store:
        writer = store.writer("orders")
        for number in range(COUNT):
            writer.put(b"%03d" % number + bytes(700))
    assert len(segments(root)) == 4
    return root


def bodies(store: rocketstore.Store) -> list[bytes]:
    return [m.body[:3] for m in store.consumer("orders", offset="earliest", reset="earliest")]


AT_AN_END = {name: lose for name, lose in MISSING.items() if name != "no second file"}


@pytest.mark.parametrize("lose", AT_AN_END.values(), ids=AT_AN_END)
def test_readers_and_scans_are_refused(root: Path, lose: Callable[[Path], None]) -> None:
    lose(root)
    for read in (
        lambda: rocketstore.open(root, "r"),
        lambda: rocketstore.scan(root),
        lambda: rocketstore.scan(root, on_damage="raise", columns=("body_view",)),
    ):
        with pytest.raises(MissingSegmentsError, match=r"missing: .*force=True reads what is left"):
            read()


@pytest.mark.parametrize("lose", AT_AN_END.values(), ids=AT_AN_END)
def test_a_shipment_is_refused(root: Path, lose: Callable[[Path], None]) -> None:
    """What is left goes to the archive before the error is raised."""
    pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")
    lose(root)
    with pytest.raises((MissingSegmentsError, CorruptRecordError), match="missing"):
        rocketstore.ship(root, (root.parent / "archive").as_uri())


def test_queues_without_a_log_open_with_force(root: Path) -> None:
    """As those with an empty `commitlog/` do: the advice of the error works."""
    shutil.rmtree(root / "commitlog")
    shutil.rmtree(root / "rocketstore")
    for mode in ("r", "r+", "rw"):
        with pytest.raises(MissingSegmentsError, match="queues; mount or restore it .*force=True"):
            rocketstore.open(root, mode)  # type: ignore[call-overload]
    for mode in ("r", "rw"):
        with rocketstore.open(root, mode, force=True) as store:  # type: ignore[call-overload]
            assert sum(one.count for one in store.recovery.lost_messages) == COUNT
            if mode == "rw":
                store.put_message("later", b"put")
    with rocketstore.open(root, "r") as store:
        assert [message.body for message in store.consumer("later")] == [b"put"]


def test_readers_and_scans_come_to_a_hole(root: Path) -> None:
    """A part in between takes itself: what lies around it is served, it is an error there."""
    segments(root)[1].unlink()
    with rocketstore.open(root, "r") as store, pytest.raises(rocketstore.CorruptRecordError):
        assert store.recovery.missing
        bodies(store)
    with pytest.raises(rocketstore.CorruptRecordError, match="missing segment"):
        list(rocketstore.scan(root))


@pytest.mark.parametrize("lose", MISSING.values(), ids=MISSING)
def test_what_is_left_is_read_where_that_is_wanted(
    root: Path, lose: Callable[[Path], None]
) -> None:
    lose(root)
    with rocketstore.open(root, "r", force=True) as store:
        assert store.recovery.missing
    rows = sum(chunk.rows for chunk in rocketstore.scan(root, on_damage="skip"))
    assert rows == sum(chunk.rows for chunk in rocketstore.scan(root, on_damage="skip"))
    assert (rows == 0) == (not list(root.glob("commitlog/*")))
    assert rows < COUNT


def test_a_log_that_is_mounted_again(root: Path) -> None:
    back = unmount(root)
    with pytest.raises(MissingSegmentsError):
        rocketstore.scan(root)
    back()
    assert sum(chunk.rows for chunk in rocketstore.scan(root)) == COUNT


def test_a_writer_of_a_log_that_is_a_link_to_nowhere(root: Path) -> None:
    """It said that the file exists."""
    MISSING["a link to nowhere"](root)
    for mode in ("rw", "r+"):
        with pytest.raises(MissingSegmentsError, match="is a link to .*, where nothing is: mount"):
            rocketstore.open(root, mode)


@pytest.mark.parametrize("number", [0, 1, 2], ids=["first", "second", "third"])
def test_a_file_that_a_live_writer_has_and_this_reader_does_not_see(
    tmp_path: Path, number: int
) -> None:
    root = tmp_path / "store"
    with rocketstore.open(
        root,
        durability="os",
        commit_log_file_size_bytes=SEGMENT_BYTES,
        index_enabled=False,
        flush_interval_ms=86_400_000,  # the file that is gone fails the flush, and so the store
    ) as store:
        writer = store.writer("orders")
        for _ in range(COUNT):
            writer.put(bytes(700))
        path = segments(root)[number]
        path.rename(root / "aside")
        (root / "rocketstore" / "live" / path.name).unlink(missing_ok=True)  # its second name
        with pytest.raises(MissingSegmentsError, match=r"shows \[\d+, \d+\), for which no file"):
            rocketstore.scan(root)
        with rocketstore.open(root, "r", force=True) as reader:
            assert reader.recovery.missing
        (root / "aside").rename(path)
        assert sum(chunk.rows for chunk in rocketstore.scan(root)) == COUNT
        store.wait_flushed(store.end_offset, 60)
        dispatched(store)
        assert store.trim(before_offset=2 * SEGMENT_BYTES) == 2 * SEGMENT_BYTES
        with rocketstore.open(root, "r") as reader:
            assert (reader.recovery.missing, reader.begin_offset) == ((), 2 * SEGMENT_BYTES)


def test_what_is_no_loss(root: Path) -> None:
    """A store without a message, one that was trimmed, one whose writer died."""
    rocketstore.open(root.parent / "empty").close()
    assert not list(rocketstore.scan(root.parent / "empty"))
    with rocketstore.open(root, durability="os") as store:
        store.wait_flushed(store.end_offset, 60)
        dispatched(store)
        assert store.trim(before_offset=2 * SEGMENT_BYTES) == 2 * SEGMENT_BYTES
    rocketstore.open(root, "r").close()
    died = root.parent / "died"
    shutil.copytree(root, died)
    (died / "abort").touch()
    with rocketstore.open(died, "r") as store:
        assert bodies(store)[-1] == b"299"
    os.truncate(died / "abort", 0)
    assert sum(chunk.rows for chunk in rocketstore.scan(died)) > 0
