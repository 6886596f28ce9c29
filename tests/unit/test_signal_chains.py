"""Signals that wake one thread after the other, and bells for event loops: no wake-up is lost."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator

import pytest

from rocketstore._native.waiting import Bell, Signal
from tests.unit.joining import LONG_MS, joined

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("round_", range(20))
def test_one_notify_reaches_everybody_in_a_chain(round_: int) -> None:
    chain = Signal(chained=True)
    seen = chain.count
    found: list[int] = []

    def wait() -> None:
        found.append(chain.wait(seen, LONG_MS))

    threads = [threading.Thread(target=wait) for _ in range(30)]
    threads.insert(30 - round_, threading.Thread(target=chain.notify))
    joined(threads)
    assert found == [seen + 1] * 30


def test_a_chain_with_waits_that_give_up(rng: random.Random, small_switch_interval: None) -> None:
    """Threads with short and long waits, for one of many generations each: those with long ones hear of
    theirs in time, whoever gave up before them in the chain."""
    chain = Signal(chained=True)
    goal = 400
    late: list[int] = []

    def wait_for(target: int, timeouts_ms: list[int]) -> None:
        turn = 0
        while True:
            seen = chain.count
            if seen >= target:
                return
            timeout_ms = timeouts_ms[turn % len(timeouts_ms)]
            if chain.wait(seen, timeout_ms) == seen and timeout_ms == LONG_MS:
                late.append(target)
                return
            turn += 1

    choices = [0, 1, 2, LONG_MS, LONG_MS, LONG_MS]
    threads = [
        threading.Thread(
            target=wait_for, args=(rng.randint(1, goal), [rng.choice(choices) for _ in range(9)])
        )
        for _ in range(60)
    ]

    def notify() -> None:
        for _ in range(goal):
            chain.notify()

    threads.append(threading.Thread(target=notify))
    joined(threads)
    assert late == []


@pytest.fixture
def descriptor() -> Iterator[int]:
    found = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    yield found
    os.close(found)


def rung(descriptor: int) -> int:
    try:
        return os.eventfd_read(descriptor)
    except BlockingIOError:
        return 0


def test_a_bell_rings_once_after_it_was_armed(descriptor: int) -> None:
    signal, bell = Signal(), Bell(descriptor)
    signal.hang(bell)
    signal.notify()
    assert rung(descriptor) == 0
    bell.arm()
    for _ in range(5):
        signal.notify()
    assert rung(descriptor) == 1
    bell.arm()
    bell.disarm()
    signal.notify()
    assert rung(descriptor) == 0
    bell.arm()
    signal.take_down(bell)
    signal.take_down(bell)
    signal.notify()
    assert rung(descriptor) == 0


def test_bells_of_many_signals_and_threads(descriptor: int) -> None:
    """Hung and taken down while others notify; each arm is answered."""
    signals = [Signal() for _ in range(3)]
    stop = threading.Event()

    def notify() -> None:
        while not stop.is_set():
            for signal in signals:
                signal.notify()

    def hang() -> None:
        own = os.eventfd(0, os.EFD_CLOEXEC)
        for _ in range(300):
            bell = Bell(own)
            for signal in signals:
                signal.hang(bell)
            bell.arm()
            assert os.eventfd_read(own) >= 1
            for signal in signals:
                signal.take_down(bell)
        os.close(own)

    hanging = [threading.Thread(target=hang) for _ in range(4)]
    notifying = threading.Thread(target=notify)
    notifying.start()
    try:
        joined(hanging)
    finally:
        stop.set()
        notifying.join()
