"""submit: the message has its place at once, the promise comes later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore import DurabilityTimeoutError, StoreFailedError
from tests.disk_calls import disk_calls
from tests.small_store import everything, open_small, open_still, parts


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The disk works only once this is set."""
    gate = threading.Event()
    with disk_calls() as calls:
        calls.hold(lambda: gate.wait(20))
        yield gate


def test_done_only_when_durable(tmp_path: Path, gate: threading.Event) -> None:
    """S000-110: waiters are released with the result, one by one, in the order of the log."""
    with open_small(tmp_path) as store:
        ticket = store.writer("orders").submit(b"x", tags="t")
        assert not ticket.done()
        assert ticket.end_offset == store.end_offset
        with pytest.raises(DurabilityTimeoutError):
            ticket.result(timeout=0.01)
        gate.set()
        result = ticket.result(timeout=20)
        assert ticket.done()
        assert result.durability == "disk"
        assert store.flushed_offset >= ticket.end_offset


def test_many_tickets_in_order(tmp_path: Path) -> None:
    order: list[int] = []
    with open_small(tmp_path) as store:
        writer = store.writer("orders")
        tickets = [writer.submit(b"%d" % n) for n in range(50)]
        last = threading.Event()
        for ticket in tickets:
            ticket.add_done_callback(lambda t: order.append(t.end_offset))
        tickets[-1].add_done_callback(lambda _: last.set())
        assert [t.result(20).queue_offset for t in tickets] == list(range(50))
        assert last.wait(20)
    assert sorted(order) == [t.end_offset for t in tickets]


def test_callbacks_run_beside_the_flusher(tmp_path: Path) -> None:
    """K-85: a slow callback does not stop flushing."""
    names: list[str] = []
    hold, called = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        names.append(threading.current_thread().name)
        called.set()
        hold.wait(20)

    with open_small(tmp_path, durability="os") as store:
        store.writer("orders").submit(b"x", durability="disk").add_done_callback(slow)
        assert called.wait(20)
        assert store.writer("orders").put(b"y", durability="disk").durability == "disk"
        hold.set()
    assert names[0] != "rocketstore-flusher"


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_callback_that_raises(tmp_path: Path, error: type[BaseException]) -> None:
    """Neither what is called next nor other tickets wait for ever."""
    with open_small(tmp_path) as store:
        done = threading.Event()

        def bad(_: object) -> None:
            raise error("user code")

        ticket = store.writer("orders").submit(b"x")
        ticket.add_done_callback(bad)
        ticket.add_done_callback(lambda _: done.set())
        assert done.wait(20)
        assert store.writer("orders").submit(b"y").future().result(20).queue_offset == 1


def test_future(tmp_path: Path, gate: threading.Event) -> None:
    with open_small(tmp_path) as store:
        future = store.writer("orders").submit(b"x").future()
        assert not future.done()
        gate.set()
        assert future.result(20).queue_offset == 0


@pytest.mark.parametrize("durability", ["os", "memory"])
def test_weaker_promises_are_done_at_once(tmp_path: Path, durability: str) -> None:
    with open_still(tmp_path, durability) as store:
        ticket = store.writer("orders").submit(b"x")
        assert ticket.done()
        assert ticket.result().durability == durability


def test_a_failed_disk_fails_the_ticket(tmp_path: Path) -> None:
    with disk_calls() as calls:
        store = open_small(tmp_path)
        calls.errors["pwritev2"] = OSError(5, "gone")
        ticket = store.writer("orders").submit(b"x")
        future = ticket.future()
        assert isinstance(future.exception(20), StoreFailedError)
        assert isinstance(ticket.exception(20), StoreFailedError)
        store.close()


def test_close_keeps_the_promise(tmp_path: Path) -> None:
    with open_still(tmp_path, "os") as store:
        writer = store.writer("orders")
        futures = [writer.submit(b"%d" % n, durability="disk").future() for n in range(20)]
    assert [f.result(0).queue_offset for f in futures] == list(range(20))
    with open_small(tmp_path, "r") as store:
        assert len(everything(store)) == 20


def test_a_late_callback_is_called_at_once(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        ticket = store.writer("orders").submit(b"x")
        ticket.result(20)
        first = threading.Event()
        ticket.add_done_callback(lambda _: first.set())
        assert first.wait(20)
        here: list[str] = []
        ticket.add_done_callback(lambda _: here.append(threading.current_thread().name))
        assert here or parts(store).completions is not None
    assert here
