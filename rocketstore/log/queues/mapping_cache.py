"""Which queues have their files mapped, so that a store may have far more queues than a process
mappings."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Final, Protocol

from rocketstore._native.os.mapping import MAPPED_FILES_MAX, mapped_files
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock

__all__ = ["POINTED_MAX", "MappingCache"]

#: Queues whose file the dispatcher holds, those it wrote last; the unit of another one stops it a
#: moment.
POINTED_MAX: Final = MAPPED_FILES_MAX * 54 // 100
#: Files of stores in this process beyond which queues that rest give theirs back.
MANY_FILES: Final = MAPPED_FILES_MAX - POINTED_MAX
#: Queues that are looked at for each one that maps its files.
LOOKS: Final = 8


class Parkable(Protocol):
    """A queue that maps its files when they are needed."""

    #: Whether it was used since it was asked the last time.
    used: bool

    def park(self) -> bool:
        """Lets go of the files. False: not now, or there are none."""
        ...


class MappingCache:
    """The queues of one store that have mapped their files, in the order in which they did.

    Those that rest are parked, the oldest first; one that was used since its last turn gets
    another.
    """

    def __init__(self) -> None:
        self._turn = SignalSafeLock()
        # A dict would look at the places of all that left its front before each that is there.
        self._order: OrderedDict[Parkable, None] = OrderedDict()

    def mapped(self, queue: Parkable) -> None:
        """To be told by a queue that has just mapped its files."""
        with self._turn as nested:
            # A queue's own lock is held here, so that those of others must not be waited for:
            # `park` does not.
            self._move_to_the_end(queue)
            if nested or mapped_files() <= MANY_FILES:
                return  # a signal's handler: this thread may be parking
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
        """All of them are closed."""
        with self._turn:
            self._order.clear()
