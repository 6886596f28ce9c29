"""`_native.sync.futex`: no wake-up is lost, signals are served, the mutex excludes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rocketstore._native.sync.futex import EventCount
from tests.unit.joining import LONG_MS, joined

pytestmark = [pytest.mark.quick, pytest.mark.timeout(300, method="thread")]


@pytest.fixture
def guarded(probe: Any) -> Any:
    """A value under a mutex."""
    return probe.Guarded()


def test_a_wait_returns_at_once_when_the_count_has_moved() -> None:
    notified = EventCount()
    seen = notified.count
    notified.notify()
    notified.notify()
    assert notified.wait(seen, LONG_MS) == notified.count == seen + 2


def test_a_wait_ends_with_the_time() -> None:
    idle = EventCount()
    before = time.monotonic()
    assert idle.wait(0, 30) == 0
    assert time.monotonic() - before >= 0.03
    assert idle.wait(0, 0) == 0
    assert idle.wait(0, -5) == 0


def test_a_count_is_32_bits() -> None:
    with pytest.raises(OverflowError):
        EventCount().wait(-1, 0)


def test_no_wake_up_is_lost_between_two_threads() -> None:
    """Each waits for the other's every step, without a time limit to save it."""
    rounds = 5000
    ping, pong = EventCount(), EventCount()

    def answer() -> None:
        for number in range(rounds):
            ping.wait(number, None)
            pong.notify()

    def ask() -> None:
        for number in range(rounds):
            ping.notify()
            pong.wait(number, None)

    joined(
        [threading.Thread(target=answer, daemon=True), threading.Thread(target=ask, daemon=True)]
    )
    assert ping.count == pong.count == rounds


def test_no_wake_up_is_lost_among_many_threads(small_switch_interval: None) -> None:
    moved = EventCount()
    notifiers, each, sleepers = 4, 2000, 4
    ends: list[int] = []

    def notify() -> None:
        for _ in range(each):
            moved.notify()

    def sleep() -> None:
        seen = 0
        while seen < notifiers * each:
            found = moved.wait(seen, LONG_MS)
            assert found > seen
            seen = found
        ends.append(seen)

    threads = [threading.Thread(target=sleep, daemon=True) for _ in range(sleepers)]
    threads += [threading.Thread(target=notify, daemon=True) for _ in range(notifiers)]
    joined(threads)
    assert ends == [notifiers * each] * sleepers


def test_waiting_lets_other_threads_run() -> None:
    ready, done = EventCount(), EventCount()

    def work() -> None:
        ready.wait(0, LONG_MS)
        done.notify()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    ready.notify()
    assert done.wait(0, LONG_MS) == 1
    worker.join()


class Served(Exception):
    pass


@pytest.fixture
def alarm() -> Any:
    """Sets SIGALRM's handler for one test."""
    before = signal.getsignal(signal.SIGALRM)
    yield lambda handler: signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signal_interrupts_a_wait(alarm: Callable[[Any], None]) -> None:
    def serve(number: int, frame: object) -> None:
        raise Served

    alarm(serve)
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    before = time.monotonic()
    with pytest.raises(Served):
        EventCount().wait(0, LONG_MS)
    assert time.monotonic() - before < 5


def test_a_handler_that_returns_lets_the_wait_go_on(alarm: Callable[[Any], None]) -> None:
    waiting = EventCount()
    served = []

    def serve(number: int, frame: object) -> None:
        served.append(number)
        if len(served) == 3:
            waiting.notify()

    alarm(serve)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    assert waiting.wait(0, LONG_MS) == 1
    assert len(served) >= 3


def start_and_wait(thread: threading.Thread) -> None:
    thread.start()
    EventCount().wait(0, LONG_MS)


def test_the_main_thread_serves_signals_that_another_thread_got(
    alarm: Callable[[Any], None],
) -> None:
    """Nothing interrupts its sleep then, so it has to look by itself."""

    def serve(number: int, frame: object) -> None:
        raise Served

    alarm(serve)
    release = EventCount()

    def receive() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGALRM)
        release.wait(0, LONG_MS)

    receiver = threading.Thread(target=receive, daemon=True)
    before = time.monotonic()
    with pytest.raises(Served):
        start_and_wait(receiver)
    assert time.monotonic() - before < 5
    release.notify()
    receiver.join()


def test_the_native_wait_sees_the_same_count(probe: Any) -> None:
    notified = EventCount()
    assert probe.wait_c(notified, 0, 1_000_000) == 0
    notified.notify()
    assert probe.wait_c(notified, 0, -1) == 1


def test_the_native_wait_without_a_limit_returns_to_the_main_thread(probe: Any) -> None:
    """So that it can serve signals; callers look again anyway."""
    assert probe.wait_c(EventCount(), 0, -1) == 0


# ---- mutex ----


def test_the_mutex_excludes(guarded: Any) -> None:
    rounds, threads = 200_000, 4
    joined(
        [threading.Thread(target=guarded.add, args=(rounds,), daemon=True) for _ in range(threads)]
    )
    assert guarded.total() == rounds * threads


def test_a_taken_mutex_is_refused_and_given_back(guarded: Any) -> None:
    assert guarded.try_lock()
    assert not guarded.try_lock()
    guarded.unlock()
    assert guarded.try_lock()


def test_waiting_for_a_mutex_has_a_limit(guarded: Any) -> None:
    assert guarded.try_lock()
    assert not guarded.lock_for(20_000_000)
    guarded.unlock()
    assert guarded.lock_for(0)


def test_who_waits_for_a_mutex_gets_it(guarded: Any) -> None:
    assert guarded.try_lock()
    taken: list[bool] = []

    def take() -> None:
        taken.append(guarded.lock_for(LONG_MS * 1_000_000))

    waiter = threading.Thread(target=take, daemon=True)
    waiter.start()
    guarded.unlock()
    waiter.join(LONG_MS / 1000)
    assert taken == [True]
