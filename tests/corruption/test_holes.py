"""Log files of holes: they cost who makes them nothing, so they cost an open nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import ReadFailedError
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.mapped_files.memory_log import MemoryLog

SIZE = 32 << 20
FILES = 8


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def with_holes(root: Path) -> None:
    with rocketstore.open(root, "rw", commit_log_file_size_bytes=SIZE) as store:
        store.writer("orders", durability="disk").put(b"x")
    for number in range(1, FILES):
        with (root / "commitlog" / segment_name(number * SIZE)).open("wb") as file:
            file.truncate(SIZE)


def test_an_open_to_read_does_not_read_holes(tmp_path: Path) -> None:
    """Pages of holes that are read stay in memory as long as the mapping."""
    with_holes(tmp_path / "s")
    before = resident_bytes()
    with rocketstore.open(tmp_path / "s", "r") as store:
        assert resident_bytes() - before < SIZE
        assert [message.body for message in store.consumer("orders")] == [b"x"]


def test_a_private_mapping_that_was_written_is_read(tmp_path: Path) -> None:
    """Only a caller that knows better gets the holes of the file."""
    path = tmp_path / segment_name(0)
    with path.open("wb") as file:
        file.truncate(1 << 20)
    mapped = MappedFile.open(path, 0, 1 << 20, "private")
    assert mapped.find_data(0, mapped.size) == mapped.size
    mapped.write(70_000, b"x")
    assert mapped.find_data(0, mapped.size) == 70_000
    mapped.close()


def test_a_memory_log_refuses_more_holes_than_are_searched_in_seconds(tmp_path: Path) -> None:
    for number in range(33):
        with (tmp_path / segment_name(number << 31)).open("wb") as file:
            file.truncate(1 << 31)
    with pytest.raises(ReadFailedError, match="does not fit"):
        MemoryLog(tmp_path, room_bytes=4096).load()
