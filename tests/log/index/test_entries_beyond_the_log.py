"""One bit of an index entry is another: it points beyond the log, and the message that it meant is not found."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import rocketstore
from rocketstore import CorruptRecordError, ReadFailedError
from tests.support.small_store import open_small

COUNT = 8
MODES = ("r", "r+")


@pytest.fixture
def harmed(tmp_path: Path) -> Path:
    """Each message has a key of its own and the key "all"; the entries of message 3 are harmed."""
    with open_small(tmp_path, durability="os") as store:
        at = [
            store.writer("t").put(b"%d" % n, keys=[f"k{n}", "all"]).physical_offset
            for n in range(COUNT)
        ]
    [path] = (tmp_path / "index").iterdir()
    data = path.read_bytes()
    entry = at[3].to_bytes(8, "big")
    assert data.count(entry) == 2
    path.write_bytes(data.replace(entry, b"\0\x04" + entry[2:]))
    return tmp_path


@pytest.mark.parametrize("mode", MODES)
def test_a_short_answer_is_an_error(harmed: Path, mode: Literal["r", "r+"]) -> None:
    """It was empty, with a line in the log."""
    with open_small(harmed, mode) as store:
        with pytest.raises(ReadFailedError, match="'k3' that points beyond the log.*rebuild"):
            store.query("t", "k3")
        with pytest.raises(ReadFailedError, match="beyond the log"):
            store.query("t", "k3", limit=1)
        assert [m.body for m in store.query("t", "k4")] == [b"4"]


@pytest.mark.parametrize("mode", MODES)
def test_the_other_messages_come_first(harmed: Path, mode: Literal["r", "r+"]) -> None:
    with open_small(harmed, mode) as store:
        found = []
        with pytest.raises(ReadFailedError, match="beyond the log"):
            for message in store.query("t", "all"):
                found.append(int(message.body))
        assert found == [7, 6, 5, 4, 2, 1, 0]
        assert [m.body for m in store.query("t", "all", limit=3)] == [b"7", b"6", b"5"]


@pytest.mark.parametrize("mode", MODES)
def test_a_caller_that_asks_for_damage_hears_of_it_so(
    harmed: Path, mode: Literal["r", "r+"]
) -> None:
    told: list[CorruptRecordError] = []
    with open_small(harmed, mode) as store:
        assert len(store.query("t", "all", on_damage=told.append)) == COUNT - 1
        assert not store.query("t", "k3", on_damage=told.append)
    assert [error.reason for error in told] == ["end", "end"]


def test_an_open_that_looks_at_the_index_mends_it(harmed: Path) -> None:
    with open_small(harmed, "r+", check_queues=True):
        pass
    with rocketstore.open(harmed, "r") as store:
        assert [m.body for m in store.query("t", "k3")] == [b"3"]
        assert len(store.query("t", "all")) == COUNT
