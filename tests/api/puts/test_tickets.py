"""submit: the message has its place at once, the promise comes later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import DurabilityTimeoutError, Store, StoreClosedError, StoreFailedError, Ticket
from tests.support.disk_calls import disk_calls
from tests.support.small_store import everything, open_small, open_still, parts, until


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """The disk works only once this is set."""
    gate = threading.Event()
    with disk_calls() as calls:
        calls.hold(lambda: gate.wait(20))
        yield gate


def test_done_only_when_durable(gate: threading.Event, store: Store) -> None:
    """S000-110: waiters are released with the result, one by one, in the order of the log."""
    ticket = store.writer("orders").submit(b"x", tags="t")
    assert not ticket.done()
    assert ticket.end_offset == store.end_offset
    with pytest.raises(DurabilityTimeoutError) as caught:
        ticket.result(timeout_s=0.01)
    assert caught.value.result is not None
    assert caught.value.result.durability == "memory"
    gate.set()
    result = ticket.result(timeout_s=20)
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
def test_callback_that_raises(error: type[BaseException], store: Store) -> None:
    """Neither what is called next nor other tickets wait for ever."""
    done = threading.Event()

    def bad(_: object) -> None:
        raise error("user code")

    ticket = store.writer("orders").submit(b"x")
    ticket.add_done_callback(bad)
    ticket.add_done_callback(lambda _: done.set())
    assert done.wait(20)
    assert store.writer("orders").submit(b"y").future().result(20).queue_offset == 1


def test_future(gate: threading.Event, store: Store) -> None:
    future = store.writer("orders").submit(b"x").future()
    assert not future.done()
    gate.set()
    assert (future.result(20).queue_offset, future.result().durability) == (0, "disk")


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


def test_a_promise_that_was_met_is_met_after_close(tmp_path: Path) -> None:
    """Also for the first who asks for a callback then."""
    with open_small(tmp_path) as store:
        ticket = store.writer("orders").submit(b"x")
    assert ticket.future().exception(0) is None
    assert ticket.done()
    assert ticket.result(0).durability == "disk"
    assert repr(ticket) == "Ticket(done, physical_offset=0)"


def test_a_ticket_of_a_failed_store_is_done(tmp_path: Path) -> None:
    """Whoever asks `done()` again and again would do so for ever."""
    with disk_calls() as calls:
        store = open_small(tmp_path)
        calls.errors["pwritev2"] = OSError(5, "gone")
        ticket = store.writer("orders").submit(b"x")
        until(store, ticket.done)
        assert repr(ticket) == "Ticket(failed, physical_offset=0)"
        for _ in range(2):
            assert isinstance(ticket.exception(0), StoreFailedError)
        store.close()
        assert ticket.done()
        assert isinstance(ticket.exception(0), StoreFailedError)


def test_a_ticket_of_a_closed_store_that_was_not_met(tmp_path: Path) -> None:
    store = open_still(tmp_path, "os")
    ticket = store.writer("orders").submit(b"x", durability="disk")
    ended = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ticket._completions, "reached", lambda *_: False)
        store.close()
        ticket.add_done_callback(lambda _: ended.set())
        assert ended.is_set()
        assert ticket.done()
        with pytest.raises(StoreClosedError):
            ticket.result()
    assert ticket.result(0).queue_offset == 0  # it is on disk, whatever was said


@pytest.mark.store(sync_flush_timeout_ms=50)
def test_a_ticket_that_was_late_is_asked_again(gate: threading.Event, store: Store) -> None:
    heard: list[BaseException | None] = []
    ticket = store.writer("orders").submit(b"x")
    told = threading.Event()

    def note(late: Ticket) -> None:
        try:
            late.result(20)  # does not wait on the thread that others wait for
        except DurabilityTimeoutError as error:
            heard.append(error)
        else:
            heard.append(None)
        told.set()

    ticket.add_done_callback(note)
    assert told.wait(20)
    assert not ticket.done()
    assert repr(ticket) == "Ticket(late, physical_offset=0)"
    told.clear()
    gate.set()
    assert ticket.result(20).queue_offset == 0
    ticket.add_done_callback(note)
    assert told.wait(20)
    assert [type(error) for error in heard] == [DurabilityTimeoutError, type(None)]
    assert ticket.future().result(20).queue_offset == 0


def test_nobody_wakes_up_while_nothing_is_waited_for(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    completions = parts(store).completions
    gate.set()
    assert store.writer("orders").submit(b"x").future().result(20)
    rounds = 0
    step = completions._step

    def counted(port: Any) -> Any:
        nonlocal rounds
        rounds += 1
        return step(port)

    monkeypatch.setattr(completions, "_step", counted)
    assert not threading.Event().wait(0.5)
    assert rounds <= 2  # of the flush before
    assert store.writer("orders").submit(b"y").future().result(20).queue_offset == 1
    assert rounds
