"""What peers may cost this process: time of its loop, lines of its log, connections without a proof.

Any process that reaches the port of a master can connect, and a master may be any process, too.
Each limit is one of all peers of a store together, so it does not grow with their number.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from typing import Final

__all__ = ["LINES_MOST", "PENDING_MOST", "PendingConnections", "Throttle", "WarningLimit"]

#: Length of the pause after a read that brought nothing, in times that the read took.
OTHERS_SHARE: Final = 16
#: What a read takes at least, seconds: it wakes the loop, which takes turns with other threads.
READ_S: Final = 0.0005
#: Kinds of trouble that are remembered, count: one of these is not logged again.
KINDS_MOST: Final = 8
#: Lines that are written at most, count, in a span, seconds.
LINES_MOST: Final = 10
LINES_IN_S: Final = 60.0
#: Connections that have not asked for the log yet, count.
PENDING_MOST: Final = 64
#: Connections that are taken in a second, and within how many seconds they may come at once.
CONNECTIONS_PER_S: Final = 100
BURST_S: Final = 1.0


class Throttle:
    """Limits the time that peers take of a loop by what brings nothing.

    All peers of one store share these pauses: as many as they are, what they take of the loop, and of
    the processor of the program, is a small part. Used in the loop."""

    def __init__(self) -> None:
        self._next_s = 0.0

    async def pause(self, began_s: float) -> None:
        """Returns once a peer of which something was read that brought nothing may be read again.
        `began_s`: `time.thread_time()` before it was looked at. Time in which the machine does other
        things does not count."""
        now_s, took_s = time.monotonic(), max(time.thread_time() - began_s, READ_S)
        self._next_s = max(self._next_s, now_s) + OTHERS_SHARE * took_s
        await asyncio.sleep(self._next_s - now_s)


class WarningLimit:
    """Which troubles are worth a line of the log: each kind once while it is among the last ones, and
    no more than some a minute, as a peer chooses its words."""

    def __init__(self) -> None:
        self._kinds: deque[str] = deque(maxlen=KINDS_MOST)
        self._since_s = -LINES_IN_S
        self._lines = self._left_out = 0

    def line(self, kind: str, text: str) -> str | None:
        """What to write of a trouble; None: nothing."""
        if kind in self._kinds:
            return None
        now = time.monotonic()
        if now - self._since_s >= LINES_IN_S:
            self._since_s, self._lines = now, 0
        if self._lines >= LINES_MOST:
            self._left_out += 1
            return None
        self._lines += 1
        self._kinds.append(kind)
        left_out, self._left_out = self._left_out, 0
        return f"{text} ({left_out} others were not logged)" if left_out else text


class PendingConnections:
    """The connections of a master that have not asked for the log, and been allowed to: they take
    nothing from the replicas. One that comes is always taken: where there are too many, the oldest of
    the address with the most of them goes, so that an address that floods the master ends its own
    connections first."""

    def __init__(self) -> None:
        self._hosts: dict[asyncio.Task[None], str] = {}  # the oldest first
        self._next_s = 0.0

    def __len__(self) -> int:
        return len(self._hosts)

    def pause_s(self) -> float:
        """One connection was taken: seconds until the next one may be."""
        now = time.monotonic()
        self._next_s = max(self._next_s, now - BURST_S) + 1 / CONNECTIONS_PER_S
        return max(0.0, self._next_s - now)

    def add(self, task: asyncio.Task[None], host: str) -> None:
        """A connection came, which `task` attends; another one may be ended for it."""
        if len(self._hosts) >= PENDING_MOST:
            (most, _), *_ = Counter(self._hosts.values()).most_common(1)
            oldest = next(one for one, its_host in self._hosts.items() if its_host == most)
            del self._hosts[oldest]
            oldest.cancel()
        self._hosts[task] = host

    def discard(self, task: asyncio.Task[None]) -> None:
        """It has asked for the log, or has ended. Idempotent."""
        self._hosts.pop(task, None)
