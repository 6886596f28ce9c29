"""The time that peers take of a loop by what brings nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Final

__all__ = ["Floods"]

#: Length of the pause after a read that brought nothing, in times that the read took.
OTHERS_SHARE: Final = 16
#: What a read takes at least, seconds: it wakes the loop, which takes turns with other threads.
READ_S: Final = 0.0005


class Floods:
    """All peers of one store share these pauses: as many as they are, what they take of the loop, and of
    the processor of the program, is a small part. Used in the loop."""

    def __init__(self) -> None:
        self._next_s = 0.0

    async def pause(self, began_s: float) -> None:
        """Returns once it is the turn of a peer of which something was read that brought nothing.
        `began_s`: `time.thread_time()` before it was looked at. Time in which the machine does other
        things does not count."""
        now_s, took_s = time.monotonic(), max(time.thread_time() - began_s, READ_S)
        self._next_s = max(self._next_s, now_s) + OTHERS_SHARE * took_s
        await asyncio.sleep(self._next_s - now_s)
