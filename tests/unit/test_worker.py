"""`log.worker`: woken at once, stopped once, and a failure that cannot be missed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from rocketstore._native.sync.futex import EventCount
from rocketstore.log.worker import Worker

pytestmark = pytest.mark.quick

LONG_S = 60


class Counter(Worker):
    """Counts its steps, tells after each, and pauses as it is told."""

    def __init__(
        self,
        pause_s: float | None = None,
        action: Callable[[], None] = lambda: None,
        signal: EventCount | None = None,
    ) -> None:
        self.failures: list[BaseException] = []
        super().__init__("counter", self.failures.append, signal=signal)
        self.pause_s = pause_s
        self.action = action
        self.stepped = EventCount()
        self.finished = 0
        self.finished_in = 0

    def step(self) -> float | None:
        self.action()
        self.stepped.notify()
        return self.pause_s

    def finish(self) -> None:
        self.finished += 1
        self.finished_in = threading.get_ident()

    def steps(self, at_least: int) -> int:
        """Waits until there were that many steps."""
        while self.stepped.count < at_least:
            seen = self.stepped.count
            if seen < at_least:
                assert self.stepped.wait(seen, LONG_S * 1000) != seen
        return self.stepped.count


@pytest.fixture
def worker() -> Counter:
    """Not started."""
    return Counter()


def test_the_first_step_comes_at_once_and_the_next_when_woken(worker: Counter) -> None:
    worker.start()
    assert worker.steps(1) == 1
    worker.wake()
    assert worker.steps(2) == 2
    assert worker.stop(LONG_S)


def test_a_wake_during_a_step_is_followed_by_another() -> None:
    entered, leave = threading.Event(), threading.Event()

    def action() -> None:
        entered.set()
        leave.wait(LONG_S)

    worker = Counter(action=action)
    worker.start()
    entered.wait(LONG_S)
    worker.wake()
    leave.set()
    worker.steps(2)
    worker.stop()


def test_pauses_end_by_themselves() -> None:
    worker = Counter(pause_s=0.005)
    before = time.monotonic()
    worker.start()
    worker.steps(4)
    assert time.monotonic() - before >= 0.015
    worker.stop()


def test_a_pause_of_nothing_is_none() -> None:
    worker = Counter(pause_s=0)
    worker.start()
    worker.steps(100)
    worker.stop()


def test_native_code_wakes_by_the_shared_signal() -> None:
    signal = EventCount()
    worker = Counter(signal=signal)
    assert worker.signal is signal
    worker.start()
    worker.steps(1)
    signal.notify()
    worker.steps(2)
    worker.stop()


def test_stopping_finishes_once_in_the_thread() -> None:
    worker = Counter(pause_s=LONG_S)
    worker.start()
    worker.steps(1)
    assert worker.alive
    assert worker.stop(LONG_S)
    assert worker.stop(LONG_S)
    assert not worker.alive
    assert worker.finished == 1
    assert worker.finished_in != threading.get_ident()
    assert worker.failures == []
    assert worker.failure is None


def test_a_thread_that_has_not_come_to_its_first_step_finishes() -> None:
    """D-36: another thread may have put, and closes, before the system gave this one a processor."""
    signal = EventCount()
    seen = signal.count

    class Late(Counter):
        def _begin(self) -> None:
            signal.wait(seen)  # until `stop` has said so
            super()._begin()

    worker = Late(signal=signal)
    worker.start()
    assert worker.stop(LONG_S)
    assert worker.finished == 1
    assert worker.stepped.count == 0


def test_stop_waits_for_the_step_that_runs() -> None:
    entered, leave = threading.Event(), threading.Event()
    order: list[str] = []

    def action() -> None:
        entered.set()
        leave.wait(LONG_S)
        order.append("step")

    worker = Counter(action=action)
    worker.start()
    entered.wait(LONG_S)
    assert not worker.stop(0.01)
    assert worker.alive
    leave.set()
    assert worker.stop(LONG_S)
    assert order == ["step"]
    assert worker.finished == 1


def test_a_worker_that_never_started_stops(worker: Counter) -> None:
    assert worker.stop()
    assert worker.finished == 0
    with pytest.raises(RuntimeError, match="counter"):
        worker.start()


def test_a_worker_starts_once(worker: Counter) -> None:
    worker.start()
    with pytest.raises(RuntimeError, match="counter"):
        worker.start()
    worker.stop()


def test_a_worker_may_stop_itself(worker: Counter) -> None:

    def stop_myself() -> None:
        assert worker.stop()

    worker.action = stop_myself
    worker.start()
    worker.steps(1)
    assert worker.stop(LONG_S)
    assert worker.failures == []
    assert worker.finished == 1


def test_a_failure_goes_to_the_owner_and_ends_the_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S000-101 does it better: the original logs an exception of a service and goes on."""
    error = OSError(5, "broken disk")

    def action() -> None:
        raise error

    worker = Counter(action=action)
    worker.start()
    assert worker.stop(LONG_S)
    assert worker.failures == [error]
    assert worker.failure is not error and repr(worker.failure) == repr(error)
    assert worker.finished == 0
    assert "broken disk" in caplog.text


def test_a_failure_of_the_end_is_told_too() -> None:
    class Failing(Counter):
        def finish(self) -> None:
            raise OSError(5, "late")

    worker = Failing()
    worker.start()
    assert worker.stop(LONG_S)
    assert [str(error) for error in worker.failures] == ["[Errno 5] late"]


def test_the_thread_has_the_workers_name_and_does_not_hold_the_process() -> None:
    threads: list[threading.Thread] = []
    worker = Counter(action=lambda: threads.append(threading.current_thread()))
    worker.start()
    worker.steps(1)
    worker.stop()
    assert threads[0].name == "counter"
    assert threads[0].daemon


def test_a_last_act_takes_the_place_of_the_next_step(worker: Counter) -> None:
    acted: list[str] = []
    assert not worker.end_with(lambda: acted.append("not started"))
    worker.start()
    worker.steps(1)
    assert worker.end_with(lambda: acted.append(threading.current_thread().name))
    assert worker._thread is not None
    worker._thread.join(LONG_S)
    assert (acted, worker.alive, worker.finished) == (["counter"], False, 1)
    assert not worker.end_with(lambda: acted.append("ended"))
    assert worker.stop(LONG_S)
    assert acted == ["counter"]


def test_a_worker_that_is_stopped_takes_no_last_act(worker: Counter) -> None:
    worker.start()
    worker.stop()
    assert not worker.end_with(lambda: None)
