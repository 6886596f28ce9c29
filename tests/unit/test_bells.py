"""Bells for event loops: no wake-up is lost."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from rocketstore._native.sync.futex import EventCount, EventFd
from tests.unit.joining import joined

pytestmark = pytest.mark.quick


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
    signal, bell = EventCount(), EventFd(descriptor)
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
    signals = [EventCount() for _ in range(3)]
    stop = threading.Event()

    def notify() -> None:
        while not stop.is_set():
            for signal in signals:
                signal.notify()

    def hang() -> None:
        own = os.eventfd(0, os.EFD_CLOEXEC)
        for _ in range(300):
            bell = EventFd(own)
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
