"""When a replica is sent the offsets of its master's groups, and which."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from rocketstore.replication.protocol.link import Offsets
from rocketstore.replication.protocol.offsets import changed_offsets
from rocketstore.replication.transport.loop import in_thread

__all__ = ["OFFSETS_EVERY_S", "SentOffsets"]

#: What changed meanwhile goes out together, seconds.
OFFSETS_EVERY_S: Final = 0.5


class SentOffsets:
    """Of one replica: what it was sent, and what it lacks. Commits and puts know nothing of it: it
    looks at the table now and then.

    A table is taken together with the end of the log then, and goes out once the replica was sent the
    log up to there. So a copy with the log up to `end` has all that its offsets speak of.
    """

    def __init__(self, table: Callable[[], Mapping[str, object]], end: Callable[[], int]) -> None:
        """`table()`: the stored offsets, replaced at each commit. `end()`: where the log ends."""
        self._table = table
        self._end = end
        self._sent: Mapping[str, object] | None = None
        self._taken: tuple[Mapping[str, object], int] | None = None
        self._at = -OFFSETS_EVERY_S
        # Whether the next table is the last one, and whether that was taken.
        self._ending = self._ended = False

    @property
    def changed(self) -> bool:
        """Whether there is something to take."""
        return self._taken is None and self._table() is not self._sent

    def end(self) -> None:
        """What has changed until now is due at once, and nothing after it."""
        self._ending = True

    @property
    def over(self) -> bool:
        """Whether the last table went out, or there is none."""
        return self._ending and self._taken is None and (self._ended or not self.changed)

    def due(self, position: int) -> bool:
        """Whether offsets are to go out before more of the log, which went out up to `position`."""
        if self._taken is None:
            now = time.monotonic()
            wait = not self._ending and now - self._at < OFFSETS_EVERY_S
            if wait or self._ended or not self.changed:
                return False
            self._at, self._ended = now, self._ending
            self._taken = (self._table(), self._end())  # in this order
        return position >= self._taken[1]

    async def take(self) -> Offsets:
        """What is due. It is called once for each time."""
        assert self._taken is not None
        before, (table, end) = self._sent, self._taken
        groups = await in_thread(changed_offsets, before, table)  # it may be large
        self._sent, self._taken = table, None
        return Offsets(end, before is None, groups)
