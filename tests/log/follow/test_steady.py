"""Beside a recovery or rebuild no queue, topic or key is looked up in files that are half made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptRecordError, StoreRecoveringError
from rocketstore._native.os import syscalls
from rocketstore.log.follow import writer_monitor
from rocketstore.log.follow.follower import Follower
from rocketstore.log.read import reader
from rocketstore.log.read.reader import Reader
from rocketstore.log.read.unit_place import messages_at
from tests.support.live_writer import LiveWriter


@pytest.fixture
def live(live: LiveWriter) -> LiveWriter:
    live.fill(5)
    return live


LOOKS: dict[str, Callable[[Follower], object]] = {
    "topics": lambda source: source.topics(),
    "queues": lambda source: source.queues("orders"),
    "queue": lambda source: source.queue("orders", 0),
    "no queue": lambda source: source.queue("others", 0),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_was_never_seen_waits_for_a_recovery(
    live: LiveWriter,
    source: Follower,
    look: Callable[[Follower], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live.page.begin()
    source.catch_up()
    monkeypatch.setattr(writer_monitor, "RECOVERY_S", 0.05)
    with pytest.raises(StoreRecoveringError, match=str(os.getpid())):
        look(source)
    monkeypatch.setattr(writer_monitor, "RECOVERY_S", 20.0)
    timer = threading.Timer(0.1, live.page.go_live)
    timer.start()
    look(source)
    timer.join()
    assert Reader(source).bounds("orders", 0) == (0, 5)


def test_a_rebuild_that_begins_during_a_look(
    live: LiveWriter, source: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-30: the directory is away for a moment, and no queue was there, the reader thought."""
    directory = live.layout.queue_directory("orders", 0)
    away = directory.with_name("away")
    looked = []
    first_look = Follower._first_look

    def during_a_rebuild(self: Follower, topic: str, queue_id: int) -> object:
        if not looked:
            live.page.begin()
            directory.rename(away)
        try:
            return first_look(self, topic, queue_id)
        finally:
            if not looked:
                looked.append(queue_id)
                away.rename(directory)
                live.move(live.made.end)
                live.page.go_live()

    monkeypatch.setattr(Follower, "_first_look", during_a_rebuild)
    queue = source.queue("orders", 0)
    assert queue is not None
    assert queue.max_offset == 5


def test_the_page_of_a_killed_writer_that_had_not_dispatched(tmp_path: Path) -> None:
    """The next one has the lock, and has not begun: a reader that recovered in memory took the old page for it."""
    live = LiveWriter(tmp_path / "store")
    live.fill(3)
    end = live.made.end
    live.page.positions.dispatched = 0
    live.die()
    with rocketstore.open(tmp_path / "store", "r") as reader:
        consumer = reader.consumer("orders")
        assert len(consumer.poll()) == 3
        os.utime(live.layout.lock, (1, 1))
        assert syscalls.lock_first_byte(live.lock_fd)
        assert consumer.poll(timeout_s=0.2) == []
        assert reader.max_queue_offset("orders", 0) == 3
        live.move(end)
        live.fill(2)
        assert len(consumer.poll(timeout_s=20.0)) == 2
    live.close()


@pytest.mark.parametrize("another", [True, False])
def test_what_a_read_meets_between_two_writers_is_no_damage(
    live: LiveWriter, source: Follower, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """The read had units of one writer, and files or bounds of the next. Damage without a change of the writer raises
    an error."""
    met = []

    def first_amid_a_recovery(source: Any, place: Any, count: int, *more: Any) -> object:
        if met and another:
            return messages_at(source, place, count, *more)
        if count == 1:
            met.append(place)
            if another:
                live.page.begin()
                live.page.go_live()
        raise CorruptRecordError(7, "unit")

    monkeypatch.setattr(reader, "messages_at", first_amid_a_recovery)
    if another:
        assert len(Reader(source).fetch("orders", 0, 0, 5).messages) == 5
    else:
        with pytest.raises(CorruptRecordError, match="physical offset 7"):
            Reader(source).fetch("orders", 0, 0, 5)
