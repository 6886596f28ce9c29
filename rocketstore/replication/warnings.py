"""Lines in the log file about peers, which come again and again and choose their words."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

__all__ = ["LINES_MOST", "Warnings"]

#: Kinds of trouble that are remembered, count: one of these is not logged again.
TOLD_MOST: Final = 8
#: Lines that are written at most, count, in a span, seconds.
LINES_MOST: Final = 10
LINES_IN_S: Final = 60.0


class Warnings:
    """Which troubles are worth a line: each kind once while it is among the last ones, and no more
    than some a minute, as a peer chooses its words."""

    def __init__(self) -> None:
        self._told: deque[str] = deque(maxlen=TOLD_MOST)
        self._since_s = -LINES_IN_S
        self._lines = self._left_out = 0

    def line(self, kind: str, text: str) -> str | None:
        """What to write of a trouble; None: nothing."""
        if kind in self._told:
            return None
        now = time.monotonic()
        if now - self._since_s >= LINES_IN_S:
            self._since_s, self._lines = now, 0
        if self._lines >= LINES_MOST:
            self._left_out += 1
            return None
        self._lines += 1
        self._told.append(kind)
        left_out, self._left_out = self._left_out, 0
        return f"{text} ({left_out} others were not logged)" if left_out else text
