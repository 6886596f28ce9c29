"""Puts the keys that an index missed while it had no room: from the log, and into no queue.

The dispatcher goes on without an index that is degraded (K-58), and tries it again. It holds its
turn for one step at a time, so readers and the dispatch of new messages come in between.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from rocketstore._native.dispatch import dispatch_loop as native
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.index.store import IndexStore

__all__ = ["IndexFiller"]

#: Log of one step, bytes.
STEP_BYTES: Final = 1 << 20


class IndexFiller:
    """`damage_at(offset)`: where the damage ends that begins there; `offset` where there is none."""

    def __init__(
        self,
        find: Callable[[int], MappedFile | None],
        damage_at: Callable[[int], int],
        index: IndexStore,
    ) -> None:
        self._find = find
        self._damage_at = damage_at
        self._index = index
        self._loop = native.DispatchLoop((), multi_dispatch=False, report_arrivals=False)

    def step(self, begin: int, end: int) -> int:
        """Puts keys of records in [begin, end), of one at least; returns how far it got. Not beyond
        `begin`: it cannot go on, or the index is degraded again."""
        self._point(begin)
        reached = self._walk(begin, min(end, begin + STEP_BYTES), end)
        return reached if reached > begin else self._walk(begin, end, end)

    def _walk(self, begin: int, end: int, most: int) -> int:
        """Records below `end`; a blank that begins there is passed as a whole, up to `most`."""
        offset, goes_on = begin, True
        while goes_on and offset < end and self._index.degraded is None:
            segment = self._find(offset)
            if segment is None:
                goes_on, offset = self._pass(offset)
                continue
            reason, offset = self._loop.run(segment, offset, end)
            if reason == native.DONE:
                goes_on = offset >= segment.end_offset
            elif reason == native.END and self._damage_at(offset) == offset:
                offset = min(segment.end_offset, most)
            elif reason in (native.END, native.BAD_RECORD):
                goes_on, offset = self._pass(offset)
            else:
                goes_on = self._help(reason, begin)
        return offset

    def _pass(self, offset: int) -> tuple[bool, int]:
        end = self._damage_at(offset)
        return end > offset, end

    def _help(self, reason: int, begin: int) -> bool:
        if reason == native.NEW_QUEUE:
            topic, queue_id, *_ = self._loop.current()
            self._loop.ignore_queue(topic, queue_id)
            return True
        if reason == native.INDEX_FILE:
            self._index.make_room(self._loop.wanted_hash)
            self._point(begin)
            return True
        if reason == native.FAULT and self._loop.faulted == "index":
            self._index.degrade(OSError(errno.EIO, "a page of the index could not be had (SIGBUS)"))
        return False

    def _point(self, begin: int) -> None:
        target, tags = self._index.target, self._index.tags
        if target is None:
            self._loop.set_index(None, 0, 0, begin, tags=tags)
        else:
            self._loop.set_index(*target[:3], begin, tags=tags, slots_ready=target.slots_ready)
