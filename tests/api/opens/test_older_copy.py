"""An older copy of a store is written over it in place, file by file, below a running reader."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore.tools import verify

#: Of one segment for all, and of two: the copy lacks the second, so it stays.
SIZES = [1 << 17, 32768]
SHAPE = {
    "durability": "os",
    "consume_queue_file_size_bytes": 400,
    "index_slots": 50,
    "index_entries": 400,
}


def put(path: Path, numbers: range, size: int, tag: bytes = b"A") -> None:
    with rocketstore.open(path, commit_log_file_size_bytes=size, **SHAPE) as store:
        writer = store.writer("orders")
        for number in numbers:
            writer.put(b"%s%05d" % (tag, number) + bytes(50), keys=f"k{number}")


def made(tmp_path: Path, size: int) -> tuple[Path, Path]:
    """A store with 200 messages, and a copy of when it had 100."""
    path, copy = tmp_path / "store", tmp_path / "copy"
    put(path, range(100), size)
    shutil.copytree(path, copy)
    put(path, range(100, 200), size)
    return path, copy


def write_over(path: Path, copy: Path) -> None:
    """As `cp -a copy/. path/` does: the files that the copy lacks stay."""
    for one in copy.rglob("*"):
        if one.is_file():
            (path / one.relative_to(copy)).write_bytes(one.read_bytes())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("written", [False, True])
def test_a_running_reader_says_that_the_store_was_replaced(
    tmp_path: Path, size: int, written: bool
) -> None:
    path, copy = made(tmp_path, size)
    with rocketstore.open(path, "r") as reader, reader.consumer("orders") as consumer:
        assert len(list(consumer)) == 200
        write_over(path, copy)
        if written:
            put(path, range(100, 150), size, b"B")
        with pytest.raises(rocketstore.StoreReplacedError):
            for _ in consumer.follow(timeout_s=10):
                pytest.fail("a message of another store")


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize(("size", "last"), [(SIZES[0], 199), (SIZES[1], 178)])
def test_the_next_open_names_what_the_copy_lacks(
    tmp_path: Path, size: int, last: int, mode: str
) -> None:
    """Messages of a later file that stayed are there."""
    path, copy = made(tmp_path, size)
    write_over(path, copy)
    with rocketstore.open(path, mode) as store:  # type: ignore[call-overload]
        report = store.recovery
        assert report.mode == "unclean"
        assert report.lost
        found = [(one.topic, one.first, one.last, one.count) for one in report.lost_messages]
        assert found == [("orders", 100, last, last - 99)]
        if mode == "rw":
            assert store.max_queue_offset("orders", 0) == (100 if last == 199 else 200)
            assert report.cut is None


@pytest.mark.parametrize(("size", "last"), [(SIZES[0], 199), (SIZES[1], 178)])
def test_verify_names_what_the_copy_lacks(tmp_path: Path, size: int, last: int) -> None:
    path, copy = made(tmp_path, size)
    write_over(path, copy)
    lost = verify(path, index_slots=50, index_entries=400).lost_messages
    assert [(one.first, one.last, one.count) for one in lost] == [(100, last, last - 99)]


def test_no_open_cuts_files_with_records_off_that_the_copy_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clean mark of the copy is not that of a log with a later file. No queue of the copy
    points there: each has one file."""
    monkeypatch.setitem(SHAPE, "consume_queue_file_size_bytes", 8000)
    path, copy = made(tmp_path, SIZES[1])
    write_over(path, copy)
    with rocketstore.open(path, "r+") as store:
        assert (store.recovery.mode, store.recovery.cut) == ("unclean", None)
        found = [bytes(message.body[:6]) for message in store.consumer("orders")]
    assert found == [b"A%05d" % number for number in (*range(100), *range(179, 200))]


def test_a_copy_of_the_whole_store_opens_cleanly(tmp_path: Path) -> None:
    path, _ = made(tmp_path, SIZES[1])
    shutil.copytree(path, tmp_path / "other")
    with rocketstore.open(tmp_path / "other") as store:
        assert (store.recovery.mode, store.recovery.lost) == ("clean", False)
