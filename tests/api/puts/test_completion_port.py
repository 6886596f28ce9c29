"""A completion port that is given what is not its own; its work is tested through `rocketstore.aio`."""

from __future__ import annotations

import pickle
import sys
import time
from asyncio import Future, new_event_loop
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketstore import (
    CompletionPort,
    DurabilityTimeoutError,
    PutResult,
    Store,
    StoreClosedError,
    StoreFailedError,
    StoreReadOnlyError,
    Writer,
)
from rocketstore.completion_port import Placed
from tests.support.small_store import dispatched, open_small, parts


@pytest.fixture
def waiter() -> Iterator[Future[object]]:
    loop = new_event_loop()
    yield Future(loop=loop)
    loop.close()


def test_a_port_of_a_reader_promises_nothing(tmp_path: Path, waiter: Future[object]) -> None:
    """Nobody flushes there: neither a message nor a position would ever be on disk."""
    with open_small(tmp_path, durability="os") as store:
        result = store.writer("orders").put(b"x")
    with open_small(tmp_path, mode="r") as reader:
        port = CompletionPort(reader)
        for promise in (
            lambda: port.promise(result, "disk", waiter),
            lambda: port.promise_flushed(result.end_offset, waiter),
        ):
            with pytest.raises(StoreReadOnlyError, match="mode='r'"):
                promise()
        assert port.pending == 0
        port.close()


def test_a_writer_of_another_store(tmp_path: Path, waiter: Future[object]) -> None:
    """Its message would be called durable by what this store has flushed."""
    with open_small(tmp_path / "one") as one, open_small(tmp_path / "other") as other:
        port = CompletionPort(other)
        with pytest.raises(ValueError, match="another store"):
            port.put(one.writer("orders"), b"x", None, None, None, 0, None, None, "disk", waiter)
        assert one.end_offset == other.end_offset == 0
        port.close()


def test_what_is_no_pickle_of_a_result(tmp_path: Path) -> None:
    with open_small(tmp_path, durability="os") as store:
        result = store.writer("orders").put_batch([b"x", b"y"])
    make, fields = result.__reduce__()  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(result)) == result == make(*fields)
    for at, wrong in (
        (5, -1),
        (5, 3),
        (6, 11),
        (6, -1),
        (7, b"12345"),
        (8, b"short"),
        (9, b"short"),
    ):
        with pytest.raises(ValueError, match="pickle"):
            make(*fields[:at], wrong, *fields[at + 1 :])


class Waiter:
    """As a loop's future that does something at once when it is done."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.then = then
        self.told: list[object] = []

    def done(self) -> bool:
        return bool(self.told)

    def set_result(self, value: object) -> None:
        self.told.append(value)
        self.then()

    set_exception = set_result


def put(port: CompletionPort, writer: Writer, waiter: Waiter) -> int:
    return port.put(writer, b"x", None, None, None, 0, None, None, "disk", waiter)


def settle_all(store: Store, port: CompletionPort) -> None:
    port.request_flush()
    store.wait_flushed(store.end_offset)
    port.drain()
    port.settle()


@pytest.mark.store(durability="disk", commit_log_file_size_bytes=1 << 20)
def test_a_waiter_may_settle_and_put(store: Store) -> None:
    writer, port = store.writer("orders"), CompletionPort(store)
    writer.put(b"first")
    last = Waiter()
    waiters = [Waiter(port.settle), Waiter(lambda: put(port, writer, last))]
    waiters += [Waiter() for _ in range(40)]
    for waiter in waiters:
        put(port, writer, waiter)
    settle_all(store, port)
    settle_all(store, port)
    assert [len(waiter.told) for waiter in [*waiters, last]] == [1] * 43
    assert port.pending == 0
    port.close()


@pytest.mark.store(durability="disk", sync_flush_timeout_ms=1)
def test_a_waiter_that_is_too_late_may_put_again(store: Store) -> None:
    writer, port = store.writer("orders"), CompletionPort(store)
    writer.put(b"first", timeout_s=20)
    again = Waiter()
    late = Waiter(lambda: put(port, writer, again))
    group = parts(store).commit_log.log.group
    group.take_turn()
    try:
        put(port, writer, late)
        time.sleep(0.01)
        port.expire()
    finally:
        group.give_turn()
    assert isinstance(late.told[0], DurabilityTimeoutError)
    port.request_flush()
    store.wait_flushed(store.end_offset, 20)
    port.drain()
    port.settle()
    assert isinstance(again.told[0], PutResult)
    assert port.pending == 0
    port.close()


@pytest.mark.store(durability="disk", sync_flush_timeout_ms=10_000)
def test_a_waiter_that_raises_strands_nobody(store: Store) -> None:
    """As a future does that another thread cancels between `done` and `set_result`."""

    def refuse() -> None:
        raise RuntimeError("cancelled")

    writer, port = store.writer("orders"), CompletionPort(store)
    writer.put(b"first")
    waiters = [Waiter(), Waiter(refuse), Waiter(), Waiter(refuse), Waiter()]
    for waiter in waiters:
        put(port, writer, waiter)
    port.request_flush()
    store.wait_flushed(store.end_offset)
    with pytest.raises(RuntimeError, match="cancelled"):
        port.settle()
    assert [len(waiter.told) for waiter in waiters] == [1] * 5
    assert (port.pending, port.settle()) == (0, 0)
    watching = [Waiter(refuse), Waiter()]
    for waiter in watching:
        port.watch_arrivals(port.arrivals, waiter)
    writer.put(b"x")
    dispatched(store)
    with pytest.raises(RuntimeError, match="cancelled"):
        port.settle()
    assert [len(waiter.told) for waiter in watching] == [1] * 2
    port.close()


@pytest.mark.store(durability="disk", sync_flush_timeout_ms=10_000)
def test_who_was_not_settled_is_completed_and_not_expired(store: Store) -> None:
    writer, port = store.writer("orders"), CompletionPort(store)
    writer.put(b"first")
    waiters = [Waiter(), Waiter()]
    for waiter in waiters:
        put(port, writer, waiter)
    port.request_flush()
    store.wait_flushed(store.end_offset)
    assert port.expire() is None
    assert [type(waiter.told[0]) for waiter in waiters] == [PutResult] * 2
    assert port.pending == port.pending_bytes == 0
    port.close()


@pytest.mark.parametrize("late", [False, True])
def test_waiters_that_raise_when_they_expire_or_fail(tmp_path: Path, late: bool) -> None:
    def refuse() -> None:
        raise KeyboardInterrupt

    timeout_ms = 1 if late else 10_000
    store = open_small(tmp_path, durability="disk", sync_flush_timeout_ms=timeout_ms)
    with store:
        writer, port = store.writer("orders"), CompletionPort(store)
        writer.put(b"first", timeout_s=20)
        waiters = [Waiter(refuse), Waiter()]
        group = parts(store).commit_log.log.group
        group.take_turn()
        try:
            for waiter in waiters:
                put(port, writer, waiter)
            if late:
                time.sleep(0.01)
            else:
                parts(store).commit_log.fail(OSError(5, "gone"))
            with pytest.raises(KeyboardInterrupt):
                (port.expire if late else port.settle)()
        finally:
            group.give_turn()
        kind = DurabilityTimeoutError if late else StoreFailedError
        assert [type(waiter.told[0]) for waiter in waiters] == [kind] * 2
        assert port.pending == 0
        port.close()


@pytest.mark.store(durability="disk")
def test_a_promise_beyond_the_end_of_the_log(waiter: Future[object], store: Store) -> None:
    """Nothing would ever be there to flush, and close would wait for it."""
    port = CompletionPort(store)
    end = store.writer("orders").put(b"x").end_offset
    with pytest.raises(ValueError, match=f"end_offset = {end + 1}: the log ends at {end}"):
        port.promise_flushed(end + 1, waiter)
    port.request_flush()
    assert port.pending == 0
    assert port.promise_flushed(end, waiter) == Placed.MET
    port.close()


@pytest.mark.store(durability="disk")
def test_a_port_that_is_closed(store: Store) -> None:
    """Its descriptor may be another file's by now."""
    writer, port, waiter = store.writer("orders"), CompletionPort(store), Waiter()
    result = writer.put(b"x", durability="memory")
    port.close()
    for act in (
        lambda: put(port, writer, waiter),
        lambda: port.promise(result, "disk", waiter),
        lambda: port.promise_flushed(result.end_offset + 1, waiter),
    ):
        with pytest.raises(StoreClosedError, match="port is closed"):
            act()
    assert store.end_offset == result.end_offset
    assert waiter.told == []


def test_who_stopped_waiting_for_arrivals_is_forgotten(store: Store) -> None:
    port, gone = CompletionPort(store), Waiter()
    gone.told.append(None)
    for _ in range(1000):
        port.watch_arrivals(port.arrivals, gone)
    assert sys.getrefcount(gone) < 200
    kept = Waiter()
    port.watch_arrivals(port.arrivals, kept)
    for _ in range(100):
        port.watch_arrivals(port.arrivals, gone)
    store.writer("orders").put(b"x")
    dispatched(store)
    port.settle()
    assert kept.told == [None]
    port.close()
