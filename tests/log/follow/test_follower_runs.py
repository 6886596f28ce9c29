"""Following a store while other threads read: what they hold and see when a new run of the writer is met."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import ReadFailedError
from rocketstore.log.follow import log_view
from rocketstore.log.follow.follower import Follower
from rocketstore.log.follow.queue import FollowerQueue
from rocketstore.log.layout.log_dirs import list_log
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.fetch_result import ReadView
from rocketstore.log.read.reader import Reader
from tests.support.live_writer import LiveWriter
from tests.support.made_store import UNIT_SIZE


def test_readers_go_on_while_a_new_run_is_met(
    live: LiveWriter, source: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads: neither do they see a log without segments, nor are files closed that they hold."""
    live.fill(60)
    reader = Reader(source)
    assert reader.bounds("orders", 0) == (0, 60)
    queue = source.queue("orders", 0)
    assert isinstance(queue, FollowerQueue)
    held = queue.locate(3)
    assert held is not None
    seen = []

    def listed(layout: StoreLayout) -> list[tuple[int, int, str]]:
        seen.append(source.segments())
        return list_log(layout)

    monkeypatch.setattr(log_view, "list_log", listed)
    live.die()
    live.start()
    assert reader.bounds("orders", 0) == (0, 60)
    assert seen
    assert all(seen)
    assert held[0].read(held[1], UNIT_SIZE)


def test_a_new_run_that_is_met_without_descriptors(
    live: LiveWriter, source: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next look begins anew as well: what was known before is of files that may not be there any more."""
    live.fill(60)
    reader = Reader(source)
    assert reader.bounds("orders", 0) == (0, 60)
    live.die()
    live.make_again("orders")
    again = live.made.fill(4)
    live.start()

    def listed(_: StoreLayout) -> list[tuple[int, int, str]]:
        monkeypatch.setattr(log_view, "list_log", list_log)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(log_view, "list_log", listed)
    with pytest.raises(OSError, match="Too many open files"):
        reader.bounds("orders", 0)
    assert reader.bounds("orders", 0) == (0, 64)
    assert reader.get(again[3].physical_offset).body == again[3].body
    assert source.segments()[0].inode == os.stat(source.segments()[0].path).st_ino


def refuse_last() -> Callable[[MappedFile, int, int], bool]:
    """The last two of 60 units are not those of their records; the disk does not give the first of these at once."""
    asked = []

    def matches(file: MappedFile, position: int, queue_offset: int) -> bool:
        asked.append(queue_offset)
        if len(asked) == 1:
            raise ReadFailedError("not yet")
        return queue_offset < 58

    return matches


def test_an_end_that_could_not_be_looked_at(live: LiveWriter) -> None:
    """Nothing that was not compared with its record counts the next time."""
    live.fill(60)
    queue = live.layout.queue_directory("orders", 0)
    assert queue.is_dir()
    units = FollowerQueue(queue, lambda: ReadView(1, 0, live.made.end, None), refuse_last())
    with pytest.raises(ReadFailedError):
        _ = units.max_offset
    assert units.max_offset == 58
