"""Zeros and holes in the log: what lies behind zeros keeps its place, and holes cost an open nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import tools
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import ReadFailedError
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.mapped_files.memory_log import MemoryLog

SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": 16384,
    "consume_queue_file_size_bytes": 400,
    "index_slots": 50,
    "index_entries": 400,
}
COUNT = 300
#: Of the messages: the first, one in the middle, the first of the second file.
PLACES = [0, 40, 125]


def open_and_close(path: Path) -> None:
    rocketstore.open(path, deliver_delayed=False, **SIZES).close()


def repair(path: Path) -> None:
    assert tools.repair(path, **SIZES).ok


def nothing(path: Path) -> None:
    """A reader makes queues and index itself."""


@pytest.fixture(params=PLACES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, int]:
    """300 messages with keys, where the first 8 bytes of one are zeros; and its number."""
    with rocketstore.open(tmp_path, durability="os", **SIZES) as store:
        writer = store.writer("t", queue_id=0)
        puts = [writer.put(b"%d" % number, keys=f"k{number}") for number in range(COUNT)]
    offset = puts[request.param].physical_offset
    with (tmp_path / "commitlog" / f"{offset - offset % 16384:020d}").open("r+b") as file:
        file.seek(offset % 16384)
        file.write(bytes(8))
    return tmp_path, request.param


def whole(path: Path, without: int, **options: Any) -> None:
    expected = [b"%d" % number for number in range(COUNT) if number != without]
    with rocketstore.open(path, "r", index_slots=50, index_entries=400, **options) as store:
        with store.consumer("t") as consumer:
            assert [bytes(one.body) for one in consumer] == expected
        keys = [n for n in range(COUNT) if len(list(store.query("t", key=f"k{n}")))]
        assert keys == [n for n in range(COUNT) if n != without]


@pytest.mark.parametrize("act", [nothing, open_and_close, repair])
def test_queues_and_index_that_are_made_again(
    damaged: tuple[Path, int], act: Callable[[Path], None]
) -> None:
    path, number = damaged
    shutil.rmtree(path / "consumequeue")
    shutil.rmtree(path / "index")
    act(path)
    whole(path, number)


def test_a_store_that_is_not_trusted(damaged: tuple[Path, int]) -> None:
    path, number = damaged
    whole(path, number, untrusted=True)


def test_units_behind_it_that_are_lost(damaged: tuple[Path, int]) -> None:
    """The comparison of queues with the log goes on behind the zeros."""
    path, number = damaged
    lost = path / "consumequeue" / "t" / "0" / f"{(number + 3) // 20 * 400:020d}"
    with lost.open("r+b") as file:
        file.seek((number + 3) % 20 * 20)
        file.write(bytes(20))
    with rocketstore.open(path, "r+", check_queues=True, deliver_delayed=False) as store:
        found = [message.body for message in store.consumer("t", queue_id=0, offset=number + 1)]
    assert bytes(found[2]) == b"%d" % (number + 3)
    assert len(found) == COUNT - number - 1


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
