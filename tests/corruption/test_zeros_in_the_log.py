"""Zeros where a record begins look like the end of a log: what lies behind them keeps its place in the queues
and in the index, whatever makes these again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import tools

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
