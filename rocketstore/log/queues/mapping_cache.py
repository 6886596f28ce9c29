"""Which queues have their files mapped: a store may have far more queues than a process may have
mappings."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Final, Protocol

from rocketstore._native.os.mapping import MAPPED_FILES_MAX, mapped_files
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock

__all__ = ["POINTED_MAX", "MappingCache"]

#: Queues whose file the dispatcher holds, count: those it wrote last. A unit of another queue stops
#: it for a moment.
POINTED_MAX: Final = MAPPED_FILES_MAX * 54 // 100
#: Mapped files of this process, count; above it queues that rest give theirs back.
MANY_FILES: Final = MAPPED_FILES_MAX - POINTED_MAX
#: Queues examined each time a queue maps its files, count.
LOOKS: Final = 8


class Parkable(Protocol):
    """A queue that maps its files when they are needed."""

    #: Whether a caller used it since the cache looked last.
    used: bool

    def park(self) -> bool:
        """Gives the files back. False: not possible now, or there are none."""
        ...


class MappingCache:
    """The queues of one store with mapped files, the longest mapped first.

    Those that rest are parked, the first ones first. A queue that was used since the last look
    moves to the end.
    """

    def __init__(self) -> None:
        self._lock = SignalSafeLock("the mapped queues")
        # In a dict each look at the first entry would pass over all that were removed before it.
        self._order: OrderedDict[Parkable, None] = OrderedDict()

    def mapped(self, queue: Parkable) -> None:
        """A queue calls it after it has mapped its files."""
        with self._lock() as nested:
            # The caller holds its queue's lock, so this must not wait for those of other queues:
            # `park` does not wait.
            self._move_to_the_end(queue)
            if nested or mapped_files() <= MANY_FILES:
                return  # `nested`: a signal handler in a thread that may be parking
            for oldest in list(itertools.islice(self._order, LOOKS)):
                if oldest is queue:
                    continue
                if not oldest.used and oldest.park():
                    self._order.pop(oldest, None)
                else:
                    oldest.used = False
                    self._move_to_the_end(oldest)

    def _move_to_the_end(self, queue: Parkable) -> None:
        self._order[queue] = None
        self._order.move_to_end(queue)

    def clear(self) -> None:
        """Forgets all queues; the store has closed them."""
        with self._lock():
            self._order.clear()
