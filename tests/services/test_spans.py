"""What waits for a span waits no longer than it, and no less, whatever the clock did meanwhile."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest

import rocketstore
from rocketstore.engine import open_options
from rocketstore.services.delay.service import DelayService
from rocketstore.testing import ManualClock
from rocketstore.values.clock import SystemClock
from tests.services.delay_tools import NOW_MS, bodies, read
from tests.services.timer_tools import (
    MINUTE,
    TOPIC,
    at,
    begun,
    due_s,
    pass_minutes,
    settled,
    timers_of,
)
from tests.support.small_store import engine_of, open_small
from tests.support.waiting import wait_until

DAY_S = 86_400


def waiting_s(store: rocketstore.Store) -> dict[bytes, float]:
    """When each message is due that waits."""
    due = [(one.message.body, one.due_time.timestamp()) for one in store.delayed]
    return {bytes(body): when - NOW_MS / 1000 for body, when in due}


def test_a_beat_goes_on_when_the_clock_was_ahead(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        begun(store)
        pass_minutes(store, clock, 1)
        clock.advance(DAY_S)
        settled(store)
        clock.set(at(60))
        wait_until(lambda: due_s(store) == [120])  # a minute from now on, not tomorrow
        pass_minutes(store, clock, 2)
        assert len(read(store)) == 4
        clock.set(at(-DAY_S))
        wait_until(lambda: due_s(store) == [60 - DAY_S])


def test_a_beat_goes_on_that_was_made_by_a_clock_ahead(tmp_path: Path, clock: ManualClock) -> None:
    """A machine that boots with a wrong clock, and the program says again what it wants."""
    path = tmp_path / "store"
    clock.set(at(DAY_S))
    with open_small(path, clock=clock) as store:
        begun(store, unique_id="beat")
    clock.set(at(0))
    with open_small(path, clock=clock) as store:
        begun(store, unique_id="beat")
        wait_until(lambda: due_s(store) == [60])
        pass_minutes(store, clock, 2)
        assert len(read(store)) == 2


def test_a_clock_that_is_stepped_under_a_store_stops_no_span(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Store times do not follow the clock of the system then, until the next open."""
    ahead_ms = [0]
    clock = open_options.SYSTEM_CLOCK
    monkeypatch.setattr(clock, "_read_ms", lambda: time.time_ns() // 1_000_000 + ahead_ms[0])
    with open_small(tmp_path / "store") as store:
        begun(store)
        store.writer("orders").put(b"hour", deliver_after=60 * MINUTE)
        ahead_ms[0] = 1800 * 1000
        store.writer("orders").put(b"late", deliver_after=60 * MINUTE)
        moved = store.put_message("orders", b"moved", deliver_at=clock.now_ms() + 9_000_000)
        assert store.delayed.reschedule(moved, 60 * MINUTE)
        wait_until(lambda: bodies(store) == [b"beat"])
        ahead_ms[0] = 0
        wait_until(lambda: len(store.delayed) == 4 and max(wait_s(clock, store)) <= 3600)


def wait_s(clock: SystemClock, store: rocketstore.Store) -> list[float]:
    return [one.due_time.timestamp() - clock.now_ms() / 1000 for one in store.delayed]


def test_what_was_named_keeps_its_time_when_the_clock_was_ahead(
    tmp_path: Path, clock: ManualClock
) -> None:
    """A span does not: it lasts no longer than it says."""
    with open_small(tmp_path / "store", clock=clock) as store:
        begun(store, b"far", start=at(3 * DAY_S))
        moved = begun(store, b"moved")
        assert store.delayed.reschedule(moved, at(2 * DAY_S))
        clock.set(at(DAY_S))
        writer = store.writer("orders")
        writer.put(b"span", deliver_after=2 * MINUTE)
        writer.put(b"time", deliver_at=at(DAY_S + 60))
        store.put_message("orders", b"property", properties={"TIMER_DELAY_MS": "180000"})
        settled(store)
        clock.set(at(0))
        named = {b"time": DAY_S + 60, b"far": 3 * DAY_S, b"moved": 2 * DAY_S}
        wait_until(lambda: waiting_s(store) == {b"span": 120, b"property": 180, **named})
        clock.set(at(180))
        settled(store)
        assert bodies(store) == [b"span", b"property"]
        assert waiting_s(store) == named


def test_a_span_that_is_taken_up_when_the_clock_was_set_back_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The thread that delivers never saw the clock that was ahead. What was cancelled stays so."""
    with open_small(tmp_path / "store", clock=clock) as store:
        begun(store, b"far", start=at(3 * DAY_S))
        settled(store)
        with timers_of(store).lock():
            clock.set(at(DAY_S))
            writer = store.writer("orders")
            writer.put(b"time", deliver_at=at(DAY_S + 60))
            writer.put(b"span", deliver_after=2 * MINUTE)
            writer.put(b"gone", deliver_after=2 * MINUTE, properties={"UNIQ_KEY": "gone"})
            clock.set(at(0))
        named = {b"time": DAY_S + 60, b"far": 3 * DAY_S}
        store.delayed.cancel("gone")
        wait_until(lambda: waiting_s(store) == {b"span": 120, **named})
        clock.set(at(120))
        wait_until(lambda: bodies(store) == [b"span"])
        assert waiting_s(store) == named


def test_a_cron_expression_goes_by_the_clock_that_was_set_back(
    tmp_path: Path, clock: ManualClock
) -> None:
    pytest.importorskip("cronsim")
    with open_small(tmp_path / "store", clock=clock) as store:
        store.delayed.repeat("orders", b"", "* * * * *")
        first = due_s(store)
        clock.advance(DAY_S)
        settled(store)
        clock.set(at(0))
        wait_until(lambda: due_s(store) == first)


def test_a_span_is_over_before_it_is_delivered(tmp_path: Path) -> None:
    """By a clock of whole milliseconds a span that begins within one would end in it."""
    with open_small(tmp_path / "store") as store:
        before_ns = time.time_ns()
        store.writer("orders").put(b"x", deliver_after=datetime.timedelta(hours=1))
        (waiting,) = store.delayed
        due_ns = round(waiting.due_time.timestamp() * 1000) * 1_000_000
        assert due_ns >= before_ns + 3_600_000_000_000


def test_a_put_during_a_look_at_the_clock_is_not_put_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    """What is put between the time of a round and the end that it reads is due later than that time
    allows, and no clock was ahead."""
    with open_small(tmp_path / "store", clock=clock) as store:
        store.writer("orders").put(b"first", deliver_after=2 * DAY_S)
        settled(store)
        times = [clock.now_ms()]

        def now_ms() -> int:
            if times:
                clock.advance(1)
                store.writer("orders").put(b"next", deliver_after=DAY_S)
                store.flush()
                return times.pop()
            return clock.now_ms()

        with (timers := timers_of(store)).lock():
            service = engine_of(store).guests.made(DelayService)
            assert service is not None
            service._thread._timer_delivery.run(now_ms)
            assert timers.table.next == 2
        assert waiting_s(store) == {b"next": 1 + DAY_S, b"first": 2 * DAY_S}
        assert store.max_queue_offset(TOPIC, 0) == 2
