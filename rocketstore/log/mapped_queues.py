"""Which queues have their files mapped, so that a store may have far more queues than a process mappings."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Protocol

from rocketstore._native.mapping import mapped_files

__all__ = ["MappedQueues"]

#: Files of stores in this process beyond which queues that rest give theirs back. The rest, up to the
#: 20,000 of all (D-39), is for segments, for index files and for queues that are in use.
MANY_FILES: Final = 12_000
#: Queues that are looked at for each one that maps its files.
LOOKS: Final = 8


class Parkable(Protocol):
    """A queue that maps its files when they are needed."""

    #: Whether it was used since it was asked the last time.
    used: bool

    def park(self) -> bool:
        """Lets go of the files. False: not now, or there are none."""
        ...


class MappedQueues:
    """The queues of one store that have mapped their files, in the order in which they did.

    Those that rest are parked, the oldest first; one that was used since its last turn gets another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._order: deque[Parkable] = deque()

    def mapped(self, queue: Parkable) -> None:
        """To be told by a queue that has just mapped its files."""
        with self._lock:
            self._order.append(queue)
        for _ in range(LOOKS if mapped_files() > MANY_FILES else 0):
            with self._lock:
                oldest = self._order.popleft()
            if oldest is queue:
                stays = True
            elif oldest.used:
                oldest.used, stays = False, True
            else:
                stays = not oldest.park()
            if stays:
                with self._lock:
                    self._order.append(oldest)
