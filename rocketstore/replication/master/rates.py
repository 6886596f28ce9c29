"""Time as a sender counts it: how fast bytes may go out and do, and for how long a replica lags."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

__all__ = ["LagTimes", "Rate", "RateLimit"]

#: Ends of the log whose times are known, count, for the lag.
TIMES_MAX: Final = 4096
#: A limit of bytes a second lets so much time's worth through at once, seconds.
BURST_S: Final = 0.02


class RateLimit:
    """A limit of bytes a second, or None."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._next_allowed = 0.0

    def most(self, most: int) -> int:
        """What one piece may have, at most `most`."""
        return most if self._limit is None else max(1, min(most, int(self._limit * BURST_S)))

    async def keep(self, now: float, size: int) -> None:
        """Waits, after `size` bytes that went out, until the next may."""
        if self._limit is None:
            return
        self._next_allowed = max(self._next_allowed, now - BURST_S) + size / self._limit
        if self._next_allowed > now:
            await asyncio.sleep(self._next_allowed - now)


class Rate:
    """Bytes of the last whole second."""

    def __init__(self) -> None:
        self._second = 0
        self._bytes = self._before = 0

    def add(self, now: float, size: int) -> None:
        self._step(int(now))
        self._bytes += size

    def at(self, now: float) -> int:
        second = int(now)
        if second == self._second:
            return self._before
        return self._bytes if second == self._second + 1 else 0

    def _step(self, second: int) -> None:
        if second != self._second:
            self._before = self._bytes if second == self._second + 1 else 0
            self._second, self._bytes = second, 0


class LagTimes:
    """Since when a replica lacks what it has not acknowledged. Any thread may ask for the lag."""

    def __init__(self) -> None:
        self.ends: deque[tuple[int, float]] = deque()

    def note_end(self, end: int) -> None:
        """The log ended there at this moment; the replica lacks it until it acknowledges it."""
        last, since = self.ends[-1] if self.ends else (0, 0.0)
        if end <= last:
            return
        if len(self.ends) < TIMES_MAX:
            since = time.monotonic()
        else:
            self.ends.pop()
        self.ends.append((end, since))

    def acknowledged(self, synced: int) -> None:
        """The replica has everything below."""
        while self.ends and self.ends[0][0] <= synced:
            self.ends.popleft()

    def lag_ms(self, now: float) -> int:
        """0 while it lacks nothing."""
        first = next(iter(list(self.ends)), None)
        return 0 if first is None else int((now - first[1]) * 1000)
