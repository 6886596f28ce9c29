"""Why a store refuses puts, reads or queue units: named reasons, each with its first cause.

The reasons and what each blocks are RocketMQ's RunningFlags (semantics 13.6).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.values.public import public

__all__ = ["FlagReason", "FlagState", "RunningFlags"]


@public
class FlagReason(enum.IntFlag):
    """RocketMQ's bits. Our own index never sets its bit: it degrades and lets puts go on (K-58)."""

    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64


_BLOCKS_PUT: Final = int(~FlagReason.NOT_READABLE & FlagReason(127))
_BLOCKS_GET: Final = int(FlagReason.NOT_READABLE)


@public
@dataclass(frozen=True, slots=True)
class FlagState:
    """One reason in force: what caused it first, and when."""

    reason: FlagReason
    cause: BaseException | str
    since_ms: int


@public
class RunningFlags:
    """The reasons in force. Any thread may ask, set and clear; asking is one load."""

    __slots__ = ("_behind", "_bits", "_lock", "_on_change", "_states")

    def __init__(self) -> None:
        self._bits = 0  # changed under the lock only
        self._lock = SignalSafeLock("the running flags")
        self._states: dict[FlagReason, FlagState] = {}
        self._on_change: Callable[[], None] = _nobody
        self._behind: Callable[[], Sequence[tuple[str, str]]] = tuple

    def on_change(self, callback: Callable[[], None]) -> None:
        """Has `callback` called after each change, instead of the one before; the log has its own.
        Raises nothing."""
        self._on_change = callback

    def tell_behind(self, ask: Callable[[], Sequence[tuple[str, str]]]) -> None:
        """Takes a function that says what lags; the store has its own. Raises nothing."""
        self._behind = ask

    @property
    def behind(self) -> tuple[tuple[str, str], ...]:
        """What lacks messages that the log holds, and why: queues or the key index, as (part,
        reason). Puts go on, reads that may miss some raise `StoreBehindError`."""
        return tuple(self._behind())

    @property
    def bits(self) -> int:
        """The value that RocketMQ's RunningFlags would show."""
        return self._bits

    @property
    def readable(self) -> bool:
        """Whether messages may be read."""
        return not self._bits & _BLOCKS_GET

    @property
    def writeable(self) -> bool:
        """Whether messages may be put."""
        return not self._bits & _BLOCKS_PUT

    def is_set(self, reason: FlagReason) -> bool:
        """Says whether `reason` is in force. Raises nothing."""
        return bool(self._bits & reason)

    def set(self, reason: FlagReason, cause: BaseException | str, *, newest: bool = False) -> bool:
        """Puts `reason` in force; says whether it was already. While it is in force its first cause
        stays; `newest`: this one replaces it.

        Raises:
            ValueError: not one reason.
        """
        check_single(reason)
        with self._lock():
            there = reason in self._states
            if there and not newest:
                return True
            self._states[reason] = FlagState(reason, cause, time.time_ns() // 1_000_000)
            self._bits |= int(reason)
        self._on_change()
        return there

    def clear(self, reason: FlagReason) -> bool:
        """Takes `reason` out of force; says whether it was in force.

        Raises:
            ValueError: not one reason.
        """
        check_single(reason)
        with self._lock():
            self._bits &= ~int(reason)
            there = self._states.pop(reason, None) is not None
        self._on_change()
        return there

    @property
    def states(self) -> tuple[FlagState, ...]:
        """The reasons in force, the oldest first."""
        with self._lock():
            return tuple(self._states.values())

    def __repr__(self) -> str:
        return f"<rocketstore.RunningFlags {self}>"

    def __str__(self) -> str:
        reasons = [describe(state) for state in self.states]
        reasons += [f"{part} behind the log: {why}" for part, why in self.behind]
        return "; ".join(reasons) or "running"


def describe(state: FlagState) -> str:
    """One line for people: reason, time and cause."""
    seconds, milliseconds = divmod(state.since_ms, 1000)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{state.reason.name} since {moment}.{milliseconds:03d}Z: {state.cause}"


def _nobody() -> None:
    """The callback before a store runs."""


def check_single(reason: FlagReason) -> None:
    """A set of reasons has no one first cause."""
    if int(reason).bit_count() != 1:
        raise ValueError(f"not one reason: {reason!r}")
