"""A forked child owns nothing of its parent's store."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CompletionPort, StoreClosedError, StoreLockedError, completion_port
from rocketstore._native.os import syscalls
from rocketstore._native.sync.futex import EventFd
from tests.process.other_process import SMALL, arriving, number_of, numbers, open_small
from tests.support.forking import unasked_gil
from tests.support.small_store import parts

InChild = Callable[[Callable[[], object]], None]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.timeout(300, method="thread"),
]


@pytest.mark.parametrize("durability", ["os", "disk", "memory"])
def test_every_entry_is_closed_in_the_child(
    tmp_path: Path, in_child: InChild, durability: str
) -> None:
    """D-35: the child hears StoreClosedError from every entry at once; it hangs nowhere."""
    with open_small(tmp_path, durability=durability) as store:
        writer = store.writer("Orders")
        result = writer.put(b"0:")
        ticket = writer.submit(b"1:")
        store.wait_flushed(ticket.end_offset)
        consumer = store.consumer("Orders", group="g")
        assert arriving(consumer, 1) == [0]
        entries: dict[str, Callable[[], object]] = {
            "put": lambda: writer.put(b"x"),
            "put disk": lambda: writer.put(b"x", durability="disk"),
            "put_batch": lambda: writer.put_batch([b"x"]),
            "put_columns": lambda: writer.put_columns(([0, 1], b"x")),
            "submit": lambda: writer.submit(b"x"),
            "put_message": lambda: store.put_message("Orders", b"x"),
            "writer": lambda: store.writer("Orders"),
            "wait_flushed": lambda: store.wait_flushed(result.end_offset),
            "consumer": lambda: store.consumer("Orders"),
            "poll": lambda: consumer.poll(timeout_s=5),
            "iterate": lambda: next(iter(consumer)),
            "follow": lambda: next(consumer.follow(5)),
            "commit": consumer.commit,
            "get": lambda: store.get(result.physical_offset),
            "query": lambda: store.query("Orders", "k"),
            "trim": lambda: store.trim(before_offset=0),
            "topics": store.topics,
            "end_offset": lambda: store.end_offset,
            "stats": store.stats,
            "configure": lambda: store.configure(flush_interval_ms=10),
        }

        def check() -> None:
            assert store.closed
            wrong = []
            for name, entry in entries.items():
                try:
                    entry()
                except StoreClosedError:
                    continue
                except BaseException as error:
                    wrong.append(f"{name}: {error!r}")
                else:
                    wrong.append(f"{name}: no error")
            assert wrong == []

        in_child(check)
        assert ticket.result(10.0).queue_offset == 1
        assert writer.put(b"2:").queue_offset == 2
        assert arriving(consumer, 2) == [1, 2]


def test_a_ticket_in_the_child_waits_for_no_thread_of_the_parent(
    tmp_path: Path, in_child: InChild
) -> None:
    """D-35: the thread that calls callbacks has the lock of the tickets in the moment of the fork."""
    with open_small(tmp_path, durability="disk") as store:
        ticket = store.writer("Orders").submit(b"0:")
        assert ticket.result(10.0).queue_offset == 0

        def check() -> None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)  # a child that hangs ends
            for entry in (ticket.future, lambda: ticket.add_done_callback(print)):
                with pytest.raises(StoreClosedError, match="forked child"):
                    entry()

        held, forked = threading.Event(), threading.Event()

        def hold() -> None:
            with parts(store).completions.lock():
                held.set()
                forked.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(60)
        try:
            in_child(check)
        finally:
            forked.set()
            thread.join()
        assert ticket.future().result(10.0).queue_offset == 0


def test_closing_in_the_child_closes_nothing_of_the_parent(
    tmp_path: Path, in_child: InChild
) -> None:
    """D-35: the child unlocks, flushes and removes nothing, neither by close nor by its exit."""
    with open_small(tmp_path) as store:
        writer = store.writer("Orders")
        writer.put(b"0:")

        def close() -> None:
            store.close()
            store.close()
            assert store.closed

        in_child(close)
        in_child(lambda: None)
        assert (tmp_path / "abort").exists()

        def another_writer() -> None:
            with pytest.raises(StoreLockedError):
                rocketstore.open(tmp_path, **SMALL)

        in_child(another_writer)
        assert writer.put(b"1:").queue_offset == 1
        assert numbers(store) == [0, 1]
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert numbers(store) == [0, 1]


def test_a_child_can_open_its_own_view(tmp_path: Path, in_child: InChild) -> None:
    """D-30 D-35: in the child the store can be read beside the parent that writes it."""
    with open_small(tmp_path) as store:
        writer = store.writer("Orders")
        for number in range(50):
            writer.put(b"%d:" % number)

        def read() -> None:
            with open_small(tmp_path, "r") as own:
                assert own.recovery.mode == "following"
                assert arriving(own.consumer("Orders"), 50) == list(range(50))

        in_child(read)
        assert writer.put(b"50:").queue_offset == 50


def test_messages_read_before_the_fork_stay_readable(tmp_path: Path, in_child: InChild) -> None:
    """D-35 D-36: what is mapped stays mapped in the child."""
    with open_small(tmp_path) as store:
        store.writer("Orders").put(b"7:seven")
        (message,) = store.consumer("Orders").poll(1)

        def read() -> None:
            assert bytes(message.body) == b"7:seven"

        in_child(read)
        assert number_of(message.body) == 7


def test_a_raw_fork_without_pythons_hooks_is_noticed(tmp_path: Path) -> None:
    """D-35: a child made by native code, past `os.register_at_fork`, is refused all the same."""
    import ctypes

    fork = ctypes.PyDLL(None).fork
    with open_small(tmp_path) as store:
        writer = store.writer("Orders")
        writer.put(b"0:")
        with unasked_gil():
            child = fork()
        if child == 0:
            code = 1
            try:
                writer.put(b"x")
            except StoreClosedError:
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert writer.put(b"1:").queue_offset == 1


def test_a_completion_port_of_the_parent_ends_without_its_locks(
    tmp_path: Path, in_child: InChild
) -> None:
    """At the exit of the child, too: a thread that rang when it forked is not there to give one back."""

    class EventCount:
        taken_down = False

        def take_down(self, bell: EventFd) -> None:
            self.taken_down = True

    signals: Any = [EventCount()]
    token = syscalls.process_token()
    with open_small(tmp_path) as store:
        port = CompletionPort(store)

        def check() -> None:
            completion_port._end(signals, EventFd(-1), os.eventfd(0), token)
            assert not signals[0].taken_down
            descriptor = port.fileno()
            port.close()
            assert port.closed
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(descriptor)

        in_child(check)
        assert not port.closed
        port.close()
    completion_port._end(signals, EventFd(-1), os.eventfd(0), token)
    assert signals[0].taken_down
