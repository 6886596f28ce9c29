"""What tests of messages with a time of their own share."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import Store
from rocketstore.services.delay.service import DelayService
from rocketstore.services.delay.timers import Timers
from rocketstore.testing import ManualClock
from tests.services.delay_tools import NOW_MS, idle
from tests.support.small_store import engine_of
from tests.support.waiting import wait_until

__all__ = [
    "MINUTE",
    "TOPIC",
    "at",
    "begun",
    "due_s",
    "pass_minutes",
    "put_at",
    "saved",
    "settled",
    "state_of",
    "timers_of",
]

TOPIC = "rmq_sys_wheel_timer"
MINUTE = datetime.timedelta(minutes=1)


def at(seconds: float) -> int:
    """A time by the clock of the tests."""
    return NOW_MS + int(seconds * 1000)


def put_at(store: Store, body: bytes, seconds: float, **named: Any) -> Any:
    return store.writer("orders").put(body, deliver_at=at(seconds), **named)


def state_of(path: Path) -> Path:
    return path / "rocketstore" / "timers" / "state"


def timers_of(store: Store) -> Timers:
    service = engine_of(store).guests.made(DelayService)
    assert service is not None
    return service.timers


def saved(store: Store) -> None:
    """Waits until the table is stored as it is."""
    timers = timers_of(store)
    engine_of(store).guests.made(DelayService)._thread.wake()
    end = engine_of(store).queue_state(TOPIC, 0).next_offset
    wait_until(
        lambda: (
            timers.table.next == end
            and timers.stored is not None
            and timers.stored._lacks_since_s is None
        )
    )


def settled(store: Store) -> None:
    """Waits until what is due can be read in its own topic."""
    idle(store)
    store.flush()


def begun(store: rocketstore.Store, body: bytes = b"beat", **named: Any) -> str:
    return store.delayed.repeat("orders", body, MINUTE, **named)


def pass_minutes(store: rocketstore.Store, clock: ManualClock, minutes: int) -> None:
    for _ in range(minutes):
        clock.advance(60)
        settled(store)


def due_s(store: rocketstore.Store) -> list[float]:
    return [waiting.due_time.timestamp() - NOW_MS / 1000 for waiting in store.delayed]
