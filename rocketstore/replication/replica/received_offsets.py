"""Offsets of the master's groups, in a copy.

They wait until the log has all that they speak of: an open sets others back to the end of their
queue.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Final

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ReplicationError, RocketStoreError
from rocketstore.replication.protocol.link import Offsets
from rocketstore.replication.protocol.offsets import CHANGES_SHARE, TABLE
from rocketstore.replication.transport.loop import in_thread

__all__ = ["ReceivedOffsets"]

#: Before offsets that could not be stored are tried again, seconds.
AGAIN_S: Final = 1.0
TOO_MANY: Final = (
    f"the master has offsets of more than {TABLE.entries:,} entries: those here stay as they are; "
    "remove groups there"
)


class ReceivedOffsets:
    """Offsets that came by one connection, until the log has what they speak of. Everything happens
    in its loop, but the writing of files."""

    def __init__(
        self,
        engine: WritingEngine,
        note: Callable[[Exception], object],
        listen: Callable[[], object],
    ) -> None:
        """`note(error)`: offsets could not be stored; they are tried again. `listen()`: `moved` is
        to be set at the next flush."""
        self._engine = engine
        self._note = note
        self._listen = listen
        self._over = False
        # What waits for the disk first, and all that came since in one.
        self._waiting: list[Offsets] = []
        self._entries = 0  # of the last one
        #: Set when there may be something to store.
        self.moved = asyncio.Event()

    def take(self, came: Offsets) -> None:
        """The master says so.

        Raises:
            ReplicationError: too many of them wait: the next connection begins with all.
        """
        if came.groups is None:
            self._note(ReplicationError(TOO_MANY))
            return
        if came.whole:
            self._waiting.clear()
        if len(self._waiting) < 2:
            self._waiting.append(Offsets(came.end, came.whole, {}))
            self._entries = 0
        groups = self._waiting.pop().groups or {}
        for key, row in came.groups.items():
            self._entries += len(row) - len(groups.get(key, ())) + (key not in groups)
            groups[key] = row
        self._waiting.append(Offsets(came.end, came.whole, groups))
        if not came.whole and self._entries > TABLE.entries // CHANGES_SHARE:
            raise ReplicationError("too many offsets of the master wait for its log")
        self.moved.set()

    def end(self) -> None:
        """Nothing comes any more: `keep` returns once it has stored what came, as far as the log
        has what that speaks of."""
        self._over = True
        self.moved.set()

    def look(self) -> None:
        """The disk has more."""
        if self._waiting:
            self.moved.set()

    async def keep(self) -> None:
        """Stores what came, once everything that it speaks of is on the disk, until `end`."""
        engine = self._engine
        while True:
            self._listen()
            self.moved.clear()
            while self._waiting and self._waiting[0].end <= engine.positions.flushed:
                offsets = self._waiting.pop(0)
                while not await self._store(offsets):
                    await asyncio.sleep(AGAIN_S)
            if self._over and not (
                self._waiting and self._waiting[0].end <= engine.positions.wrote
            ):
                return
            await self.moved.wait()

    async def _store(self, offsets: Offsets) -> bool:
        writing = asyncio.ensure_future(
            in_thread(
                partial(
                    self._engine.offsets.take_from_master, offsets.groups or {}, whole=offsets.whole
                )
            )
        )
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # Nothing ends the thread, and those of the next connection must not come before.
            await asyncio.gather(writing, return_exceptions=True)
            raise
        except (RocketStoreError, OSError) as error:  # the log goes on
            self._note(error)
            return getattr(error, "errno", None) == errno.EFBIG  # it would be as large again
        return True
