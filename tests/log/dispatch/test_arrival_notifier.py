"""Calls to the arrival listener."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from rocketstore.log.dispatch import arrival_notifier as arrivals_module
from rocketstore.log.dispatch.arrival_notifier import Arrival, ArrivalNotifier


def arrival(n: int) -> Arrival:
    return ("t", 0, n, 0, 0)


def test_in_order_from_a_thread_of_its_own() -> None:
    heard: list[tuple[object, ...]] = []
    names: set[str] = set()

    def listener(*args: object) -> None:
        heard.append(args)
        names.add(threading.current_thread().name)

    caller = ArrivalNotifier(listener)
    caller.hand_over([arrival(n) for n in range(100)])
    caller.close()
    assert heard == [arrival(n) for n in range(100)]
    assert names == {"rocketstore-arrivals"}


def test_never_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped; the newest, which says how far the queue is, is heard."""
    monkeypatch.setattr(arrivals_module, "WAITING_MAX", 10)
    gate, inside = threading.Event(), threading.Event()
    heard: list[int] = []

    def listener(*args: Any) -> None:
        inside.set()
        assert gate.wait(20)
        heard.append(args[2])

    caller = ArrivalNotifier(listener)
    caller.hand_over([arrival(0)])
    assert inside.wait(20)
    caller.hand_over([arrival(n) for n in range(1, 101)])
    gate.set()
    caller.close()
    assert heard[0] == 0
    # The end mark takes a place of its own.
    assert heard[-1] == 100
    assert heard == sorted(heard)
    assert len(heard) <= 11


def test_errors_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def listener(*args: object) -> None:
        calls.append(1)
        raise RuntimeError("user code")

    caller = ArrivalNotifier(listener)
    with caplog.at_level(logging.ERROR):
        caller.hand_over([arrival(n) for n in range(5)])
        caller.close()
    assert len(calls) == 5
    assert caplog.text.count("the arrival listener raised") == 1


def test_close_from_the_listener_does_not_hang() -> None:
    done = threading.Event()
    box: list[ArrivalNotifier] = []

    def listener(*args: object) -> None:
        box[0].close()
        done.set()

    box.append(ArrivalNotifier(listener))
    box[0].hand_over([arrival(1)])
    assert done.wait(20)


def test_a_close_waits_for_no_listener_that_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many calls wait for it."""
    monkeypatch.setattr(arrivals_module, "WAITING_MAX", 10)
    monkeypatch.setattr(arrivals_module, "CLOSE_WAIT_S", 0.01)
    gate, inside, closed = threading.Event(), threading.Event(), threading.Event()

    def listener(*args: Any) -> None:
        inside.set()
        assert gate.wait(20)

    caller = ArrivalNotifier(listener)
    caller.hand_over([arrival(0)])
    assert inside.wait(20)
    caller.hand_over([arrival(n) for n in range(20)])
    closing = threading.Thread(target=lambda: (caller.close(), closed.set()))
    closing.start()
    try:
        assert closed.wait(20)
    finally:
        gate.set()
        closing.join()
