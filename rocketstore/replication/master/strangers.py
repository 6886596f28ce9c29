"""Peers without a proof of what they are: how many there may be, and how fast they may come.

Any process that reaches the port of a master can connect. So what a connection costs before its
peer has asked for the log, and been allowed to, has bounds of its own, and takes nothing from the
replicas.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Final

__all__ = ["WAITING_MOST", "WaitingRoom"]

#: Connections that have not asked for the log yet, count.
WAITING_MOST: Final = 64
#: Connections that are taken in a second, and within how many seconds they may come at once.
CONNECTIONS_PER_S: Final = 100
BURST_S: Final = 1.0


class WaitingRoom:
    """The connections of a master that have not asked for the log. One that comes is always taken:
    where there are too many, the oldest of the address with the most of them goes, so that an
    address that floods the master ends its own connections first."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Task[None], str] = {}  # the oldest first
        self._next_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def pause_s(self) -> float:
        """One connection was taken: seconds until the next one may be."""
        now = time.monotonic()
        self._next_s = max(self._next_s, now - BURST_S) + 1 / CONNECTIONS_PER_S
        return max(0.0, self._next_s - now)

    def enter(self, task: asyncio.Task[None], host: str) -> None:
        """A connection came, which `task` attends; another one may be ended for it."""
        if len(self._waiting) >= WAITING_MOST:
            (most, _), *_ = Counter(self._waiting.values()).most_common(1)
            oldest = next(one for one, its_host in self._waiting.items() if its_host == most)
            del self._waiting[oldest]
            oldest.cancel()
        self._waiting[task] = host

    def leave(self, task: asyncio.Task[None]) -> None:
        """It has asked for the log, or has ended. Idempotent."""
        self._waiting.pop(task, None)
