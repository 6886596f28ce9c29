"""How far n machines have the log, from how far each of them has it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["COPIES_MAX", "NOT_CONNECTED", "Quorum"]

#: As many machines as one promise can name.
COPIES_MAX: Final = 9
NOT_CONNECTED: Final = -1


class Quorum:
    """Told how far each connected replica has synced the log, it tells how far each number of
    machines has, the master included. It tells changes only. One thread uses it."""

    def __init__(self, confirm: Callable[[int, int], None]) -> None:
        """`confirm(copies, offset)`: so many machines have everything below `offset`;
        `NOT_CONNECTED`: there are not so many."""
        self._confirm = confirm
        self._synced: dict[Hashable, int] = {}
        self._told = dict.fromkeys(range(2, COPIES_MAX + 1), NOT_CONNECTED)

    def acknowledged(self, replica: Hashable, offset: int) -> None:
        """A replica has everything below `offset` on its disk. Its first word makes it count."""
        self._synced[replica] = offset
        self._tell()

    def left(self, replica: Hashable) -> None:
        """A replica is not connected any more. Idempotent."""
        if self._synced.pop(replica, None) is not None:
            self._tell()

    def _tell(self) -> None:
        reached = sorted(self._synced.values(), reverse=True)
        for copies, told in self._told.items():
            offset = reached[copies - 2] if copies - 2 < len(reached) else NOT_CONNECTED
            if offset != told:
                self._told[copies] = offset
                self._confirm(copies, offset)
