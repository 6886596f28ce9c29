"""Ctrl-C ends every wait at once, and the store can still be closed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store
from tests.process.other_process import HOLD, numbers, open_small, other_process
from tests.support.small_store import parts

#: A wait that does not hear the signal lasts this long or longer.
WAIT_S = 30.0
PROMPT_S = 3.0


@contextmanager
def interrupted(ready: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Sends Ctrl-C to this process after `ready()` returned in another thread; expects it soon."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sent_at: list[float] = []

    def send() -> None:
        ready()
        threading.Event().wait(0.2)  # the main thread sleeps in its wait by now
        sent_at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
        caught_at = time.monotonic()
    finally:
        sender.join()
        signal.signal(signal.SIGINT, before)
    assert caught_at - sent_at[0] < PROMPT_S


class HungFlusher:
    """A flusher whose next flush hangs until `go_on`, as on a disk that does not answer."""

    def __init__(self, store: Store) -> None:
        flusher = parts(store).flusher
        self.reached = threading.Event()
        self._free = threading.Event()
        real = flusher.flush

        def flush() -> None:
            self.reached.set()
            self._free.wait(WAIT_S)
            real()

        flusher.flush = flush  # type: ignore[method-assign]

    def go_on(self) -> None:
        self._free.set()


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_in_a_put_that_waits_for_a_hanging_disk(tmp_path: Path, durability: str) -> None:
    """D-33: waits wake for signals; the message that waited is in the log all the same."""
    options: dict[str, Any] = {
        "durability": durability,
        "sync_flush_timeout_ms": int(WAIT_S * 1000),
    }
    with open_small(tmp_path, **options) as store:
        writer = store.writer("Orders")
        hung = HungFlusher(store)
        with interrupted(hung.reached.wait):
            writer.put(b"0:", durability="disk")
        hung.go_on()
        assert writer.put(b"1:", durability="disk").queue_offset == 1
        assert numbers(store) == [0, 1]
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("entry", ["wait_flushed", "ticket", "put_batch"])
def test_in_every_other_wait_for_the_disk(tmp_path: Path, entry: str) -> None:
    """D-33: wait_flushed, a ticket's result and put_batch wake for signals as well."""
    with open_small(tmp_path, sync_flush_timeout_ms=int(WAIT_S * 1000)) as store:
        writer = store.writer("Orders")
        hung = HungFlusher(store)
        ticket = writer.submit(b"0:")
        waits: dict[str, Callable[[], object]] = {
            "wait_flushed": lambda: store.wait_flushed(ticket.end_offset, WAIT_S),
            "ticket": lambda: ticket.result(WAIT_S),
            "put_batch": lambda: writer.put_batch([b"1:", b"2:"]),
        }
        with interrupted(hung.reached.wait):
            waits[entry]()
        hung.go_on()
        assert ticket.result(WAIT_S).queue_offset == 0
    assert not (tmp_path / "abort").exists()


def test_in_a_put_that_waits_for_room(tmp_path: Path) -> None:
    """D-15 D-33: back-pressure wakes for signals; nothing of the put that waited is stored."""
    options: dict[str, Any] = {"max_unflushed_bytes": 64 * 1024, "max_wait_ms": int(WAIT_S * 1000)}
    with open_small(tmp_path, durability="os", **options) as store:
        writer = store.writer("Orders")
        hung = HungFlusher(store)
        with interrupted(hung.reached.wait):
            for number in range(1000):
                writer.put(b"%d:" % number + bytes(1000))
        hung.go_on()
        found = numbers(store)
        assert found == list(range(number))
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("entry", ["follow", "poll"])
def test_in_a_wait_for_messages(tmp_path: Path, entry: str) -> None:
    """D-33: follow without an end and a poll with a timeout wake for signals."""
    with open_small(tmp_path) as store:
        writer = store.writer("Orders")
        writer.put(b"0:")
        consumer = store.consumer("Orders")
        assert len(consumer.poll()) == 1
        with interrupted():
            next(consumer.follow()) if entry == "follow" else consumer.poll(timeout_s=WAIT_S)
        writer.put(b"1:")
        assert [bytes(message.body) for message in consumer.poll(timeout_s=WAIT_S)] == [b"1:"]
    assert not (tmp_path / "abort").exists()


def test_in_a_reader_of_another_process(tmp_path: Path) -> None:
    """D-30 D-33: a follower that sleeps on the writer's page wakes for signals."""
    with other_process(HOLD, tmp_path) as writer:
        assert writer.line() == "open"
        with open_small(tmp_path, "r") as reader:
            consumer = reader.consumer("Orders")
            with interrupted():
                consumer.poll(timeout_s=WAIT_S)
            assert consumer.poll() == []
