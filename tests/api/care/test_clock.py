"""A clock that a test moves by hand: `rocketstore.open(path, clock=…)`."""

from __future__ import annotations

import asyncio
import datetime
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
import rocketstore.aio
from rocketstore.engine.open_options import SYSTEM_CLOCK
from rocketstore.errors import ConfigError
from rocketstore.log.worker import Worker
from rocketstore.testing import ManualClock
from rocketstore.values.clock import LATEST_MS, LONGEST_S, Clock
from tests.support.forking import fork
from tests.support.small_store import open_small

START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
START_MS = 1_893_456_000_000
HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def clock() -> ManualClock:
    """It stands still."""
    return ManualClock(START)


def test_store_and_born_times_are_those_of_the_clock(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("t")
        results = [writer.put(b"a")]
        clock.advance(HOUR)
        results += [writer.put_batch([b"b"]), store.put_message("t", b"c")]
        clock.advance(0.25)
        results += [store.put_batch([rocketstore.NewMessage("t", b"d")])]
        results += [
            store.put_columns((np.array([0, 1]), b"e"), topics=["t"]),
            writer.put_columns((np.array([0, 1]), b"f")),
        ]
        want = [0, 3_600_000, 3_600_000, 3_600_250, 3_600_250, 3_600_250]
        assert [r.store_timestamp_ms - START_MS for r in results] == want
        found = list(store.consumer("t"))
        assert [m.store_timestamp_ms - START_MS for m in found] == want
        assert [m.born_timestamp_ms - START_MS for m in found] == want
        assert found[0].store_time == START


def test_store_times_do_not_fall_when_the_clock_is_set_back(
    tmp_path: Path, clock: ManualClock
) -> None:
    """As with a wall clock that is stepped (D-28)."""
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("t")
        writer.put(b"a")
        clock.set(START - HOUR)
        assert writer.put(b"b").store_timestamp_ms == START_MS
        clock.set(START_MS + 1)
        assert writer.put(b"c").store_timestamp_ms == START_MS + 1


def test_a_clock_that_stands_still_gives_equal_times(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("t")
        assert {writer.put(b"a").store_timestamp_ms for _ in range(100)} == {START_MS}


def test_store_times_fall_once_at_an_open_with_an_earlier_clock(tmp_path: Path) -> None:
    """The lead of the last store time is measured by the clock of the open (D-28)."""
    with open_small(tmp_path, clock=ManualClock(START)) as store:
        store.writer("t").put(b"a")
    with open_small(tmp_path, clock=ManualClock(START_MS - 60_000)) as store:
        assert store.writer("t").put(b"b").store_timestamp_ms == START_MS
    with open_small(tmp_path, clock=ManualClock(START_MS - 60_001)) as store:
        assert store.writer("t").put(b"c").store_timestamp_ms == START_MS - 60_001


def test_trim_by_time_asks_the_clock(tmp_path: Path, clock: ManualClock) -> None:
    """A store time that is to come says nothing of the age of a file: to come by this clock."""
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("t")
        for _ in range(4):
            writer.put(bytes(3000))
        store.flush()
        sum(1 for _ in store.consumer("t"))
        clock.set(START - HOUR)
        assert store.trim(before_time=START + HOUR) == 0
        clock.set(START)
        assert store.trim(before_time=START + HOUR) > 0


def test_several_stores_share_a_clock_until_they_close(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "a", clock=clock) as one:
        with open_small(tmp_path / "b", clock=clock) as two:
            clock.advance(1)
            for store in (one, two):
                assert store.writer("t").put(b"x").store_timestamp_ms == START_MS + 1000
            assert len(clock._followers) == 2
        clock.advance(1)
        assert one.writer("t").put(b"x").store_timestamp_ms == START_MS + 2000
    assert not clock._followers


@pytest.mark.store(clock=None)
def test_without_a_clock_the_time_is_that_of_the_system(store: rocketstore.Store) -> None:
    before = SYSTEM_CLOCK.now_ms()
    result = store.writer("t").put(b"x")
    assert before - 1 <= result.store_timestamp_ms <= SYSTEM_CLOCK.now_ms() + 1


def test_a_reader_may_be_given_one(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")
    with open_small(tmp_path, "r", clock=ManualClock(START)) as store:
        assert [m.body for m in store.consumer("t")] == [b"x"]


def test_tasks_have_it_too(tmp_path: Path) -> None:
    async def scene() -> int:
        async with rocketstore.aio.open(tmp_path, clock=ManualClock(START)) as store:
            return (await store.writer("t").put(b"x")).store_timestamp_ms

    assert asyncio.run(scene()) == START_MS


@pytest.mark.parametrize("wrong", [1, START, lambda: 1, "now", ManualClock, SYSTEM_CLOCK])
def test_what_is_no_clock_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"clock.*ManualClock"):
        rocketstore.open(tmp_path / "store", clock=wrong)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("move", "kind"),
    [
        (lambda c: c.advance(-1), ValueError),
        (lambda c: c.advance(-HOUR), ValueError),
        (lambda c: c.advance(float("nan")), ValueError),
        (lambda c: c.advance(float("inf")), ValueError),
        (lambda c: c.advance(1e300), ValueError),
        (lambda c: c.advance("1"), TypeError),
        (lambda c: c.advance(None), TypeError),
        (lambda c: c.set(-1), ValueError),
        (lambda c: c.set(LATEST_MS + 1), ValueError),
        (lambda c: c.set(datetime.datetime(2030, 1, 1)), ValueError),
        (lambda c: c.set(1.5), TypeError),
        (lambda c: c.set(None), TypeError),
        (lambda c: c.wait_until(None), TypeError),
        (lambda c: c.wait_until(1, "1"), TypeError),
        (lambda c: ManualClock(-1), ValueError),
        (lambda c: ManualClock(True), TypeError),
    ],
)
def test_wrong_times_leave_the_clock_where_it_is(
    move: Any, kind: type[Exception], clock: ManualClock
) -> None:
    with pytest.raises(kind):
        move(clock)
    assert clock.now_ms() == START_MS


def test_the_whole_range(tmp_path: Path) -> None:
    clock = ManualClock(0)
    assert clock.now == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    with open_small(tmp_path, clock=clock) as store:
        assert store.writer("t").put(b"x").store_timestamp_ms == 0
        clock.set(LATEST_MS)
        assert store.writer("t").put(b"x").store_timestamp_ms == LATEST_MS
    clock.advance(0)
    with pytest.raises(ValueError, match="expected 0"):
        clock.advance(0.001)
    assert repr(clock) == f"ManualClock({LATEST_MS})"


def test_less_than_a_millisecond_is_dropped(clock: ManualClock) -> None:
    clock.advance(datetime.timedelta(microseconds=1999))
    assert clock.now_ms() == START_MS + 1
    assert clock.now == START + datetime.timedelta(milliseconds=1)
    assert abs(ManualClock().now_ms() - SYSTEM_CLOCK.now_ms()) < 60_000


def test_who_waits_is_woken_by_the_move(clock: ManualClock) -> None:
    assert clock.wait_until(START)
    assert not clock.wait_until(START + HOUR, timeout_s=0.01)
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(clock.wait_until(START + HOUR, 60)))
    thread.start()
    clock.advance(HOUR / 2)
    assert not woken
    clock.advance(HOUR / 2)
    thread.join(60)
    assert woken == [True]


class Alarm(Worker):
    """A worker as a service is one: it sleeps until its time has come."""

    def __init__(self, clock: Clock, due_ms: int) -> None:
        super().__init__("alarm", lambda error: None)
        self.clock, self.due_ms = clock, due_ms
        self.steps = 0
        self.rang = threading.Event()
        self.slept = threading.Event()
        self.end = clock.follow(lambda now_ms: self.wake())

    def step(self) -> float | None:
        self.steps += 1
        pause_s = self.clock.pause_s(self.due_ms)
        if pause_s == 0:
            self.rang.set()
            return None
        self.slept.set()
        return pause_s


def test_a_worker_sleeps_until_the_clock_has_come_to_its_time(clock: ManualClock) -> None:
    alarm = Alarm(clock, START_MS + 3_600_000)
    alarm.start()
    try:
        assert alarm.slept.wait(60)
        assert alarm.steps <= 2  # it does not poll: one step, and one of the first call
        clock.advance(HOUR)
        assert alarm.rang.wait(60)
    finally:
        alarm.end()
        alarm.stop()
    assert not clock._followers


def test_a_worker_by_the_system_s_clock() -> None:
    alarm = Alarm(SYSTEM_CLOCK, SYSTEM_CLOCK.now_ms() + 50)
    alarm.start()
    try:
        assert alarm.rang.wait(60)
        assert SYSTEM_CLOCK.now_ms() >= alarm.due_ms
    finally:
        alarm.stop()
    assert SYSTEM_CLOCK.pause_s(2**62) == LONGEST_S


def test_moves_of_several_threads_leave_one_time(tmp_path: Path, clock: ManualClock) -> None:
    """The last time that the store was told is that of the clock."""
    with open_small(tmp_path, clock=clock) as store:
        threads = [
            threading.Thread(target=lambda: [clock.advance(0.001) for _ in range(500)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert clock.now_ms() == START_MS + 2000
        assert store.writer("t").put(b"x").store_timestamp_ms == START_MS + 2000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_may_move_it(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        child = fork()
        if child == 0:
            clock.advance(1)
            os._exit(0 if clock.now_ms() == START_MS + 1000 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert store.writer("t").put(b"x").store_timestamp_ms == START_MS
