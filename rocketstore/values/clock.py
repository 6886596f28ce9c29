"""The clock of a store: that of the system, or one that a test moves by hand.

A worker that waits for a point in time asks `pause_s` how long to sleep, and has `follow` wake it
when a clock is moved by hand. So it sleeps until the next due time and never polls.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from rocketstore.values.arguments import seconds
from rocketstore.values.timestamps import Duration, Timestamp, duration_of, timestamp_ms

__all__ = ["Clock", "ManualClock", "SystemClock"]

#: Longest sleep by the system's clock, seconds: it may be stepped meanwhile.
LONGEST_S: Final = 1.0
#: Latest time, ms since 1970: nanoseconds are kept in 64 bits.
LATEST_MS: Final = (2**63 - 1) // 1_000_000
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)

#: Is called with the time in ms.
Follower = Callable[[int], None]


class Clock(Protocol):
    """What services ask for the time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""

    def pause_s(self, due_ms: int) -> float | None:
        """Seconds to sleep before `due_ms` is looked at again: 0 once it is past; None: until the
        clock is moved, which `follow` reports."""

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Calls `follower` now, and each time the clock was moved by hand, until what this returns
        is called."""


class SystemClock:
    """The wall clock of the system, which moves by itself: it calls no follower."""

    def __init__(self, read_ms: Callable[[], int] | None = None) -> None:
        """`read_ms`: what reads it, in ms; None: Python."""
        self._read_ms = read_ms or _time_ms

    def now_ms(self) -> int:
        return self._read_ms()

    def pause_s(self, due_ms: int) -> float | None:
        return min(max(0.0, (due_ms - self.now_ms()) / 1000), LONGEST_S)

    def follow(self, follower: Follower) -> Callable[[], None]:
        return lambda: None


class ManualClock:
    """A clock that moves only by hand, for tests: `rocketstore.open(path, clock=…)`.

    Store times, the born times that a put does not give, and whatever a store does at a time of its
    own follow it. It may be shared by several stores, and moved from any thread: what waits for a
    time that has come is woken before the call that moves the clock returns. It has whole
    milliseconds, from 1970 to 2262.
    """

    def __init__(self, start: Timestamp | None = None) -> None:
        """`start`: milliseconds since 1970 UTC or an aware datetime; None: the system's time."""
        # A follower may ask for the time, and a signal's handler may move the clock.
        self._moved = threading.Condition(threading.RLock())
        self._followers: dict[object, Follower] = {}
        self._now_ms = _time_ms() if start is None else _checked("start", start)

    @property
    def now(self) -> datetime.datetime:
        """The time, as an aware datetime in UTC. OverflowError: none after the year 9999."""
        return _EPOCH + self._now_ms * _MILLISECOND

    def now_ms(self) -> int:
        """Gives the time in milliseconds since 1970 UTC."""
        return self._now_ms

    def advance(self, by: Duration) -> None:
        """Moves the clock forward by seconds, or by a timedelta; rounded down to the millisecond.

        Raises:
            TypeError: Neither a number nor a timedelta.
            ValueError: Less than 0, or beyond the year 2262. `set` moves a clock back.
        """
        ahead = duration_of("by", by)
        if ahead < datetime.timedelta(0):
            raise ValueError(f"by = {by!r}: a clock advances by 0 or more; set() moves it back")
        with self._moved:
            self._move(_checked("by", self._now_ms + ahead // _MILLISECOND))

    def set(self, when: Timestamp) -> None:
        """Sets the clock, forward or back. Store times do not fall all the same.

        Raises:
            TypeError: Neither a whole number of milliseconds nor a datetime.
            ValueError: A naive datetime, or a time before 1970 or after 2262.
        """
        when_ms = _checked("when", when)
        with self._moved:
            self._move(when_ms)

    def wait_until(self, when: Timestamp, timeout_s: Duration | None = None) -> bool:
        """Waits until the clock says `when` or later. False: `timeout_s` real seconds went by first.

        Raises:
            TypeError, ValueError: As `set`.
        """
        when_ms = _checked("when", when)
        left_s = None if timeout_s is None else seconds("timeout_s", timeout_s)
        with self._moved:
            return self._moved.wait_for(lambda: self._now_ms >= when_ms, left_s)

    def pause_s(self, due_ms: int) -> float | None:
        """Gives 0 once `due_ms` is past, else None: only a move makes it so."""
        return 0.0 if due_ms <= self._now_ms else None

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Calls `follower` with the time in milliseconds, now and at each move, until what this
        returns is called. It must not wait for another thread that moves the clock."""
        key = object()
        with self._moved:
            self._followers[key] = follower
            follower(self._now_ms)
        return lambda: self._forget(key)

    def __repr__(self) -> str:
        return f"ManualClock({self._now_ms})"

    def _forget(self, key: object) -> None:
        with self._moved:
            self._followers.pop(key, None)

    def _move(self, when_ms: int) -> None:
        self._now_ms = when_ms
        for follower in tuple(self._followers.values()):
            follower(when_ms)
        self._moved.notify_all()


ManualClock.__module__ = "rocketstore.testing"  # where users find it, and help shows it


def _time_ms() -> int:
    return time.time_ns() // 1_000_000


def _checked(name: str, when: Timestamp) -> int:
    when_ms = timestamp_ms(name, when)
    if not 0 <= when_ms <= LATEST_MS:
        raise ValueError(f"{name}: {when_ms} ms since 1970: expected 0 … {LATEST_MS}")
    return when_ms
