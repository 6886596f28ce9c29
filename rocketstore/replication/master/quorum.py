"""How far n machines have the log, from how far each of them has it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["COPIES_MAX", "NOT_CONNECTED", "Quorum"]

#: As many machines as one promise can name.
COPIES_MAX: Final = 9
NOT_CONNECTED: Final = -1


class Quorum:
    """From how far each connected replica has synced the log, it computes how far each number of
    machines has, the master included, and reports changes. One thread uses it."""

    def __init__(self, confirm: Callable[[int, int, int], None]) -> None:
        """`confirm(copies, offset, begin)`: `copies` machines have everything in [begin, offset).
        Offset `NOT_CONNECTED`: fewer machines are connected."""
        self._confirm = confirm
        self._synced: dict[Hashable, tuple[int, int]] = {}
        self._reported = dict.fromkeys(range(2, COPIES_MAX + 1), NOT_CONNECTED)

    def acknowledged(self, replica: Hashable, offset: int, begin: int = 0) -> None:
        """A replica, whose log begins at `begin`, has everything from there to `offset` on its disk.
        Its first word makes it count."""
        self._synced[replica] = (offset, begin)
        self._report()

    def left(self, replica: Hashable) -> None:
        """A replica is not connected any more. Idempotent."""
        if self._synced.pop(replica, None) is not None:
            self._report()

    def _report(self) -> None:
        reached = sorted(self._synced.values(), reverse=True)
        begin = 0
        for copies, reported in self._reported.items():
            offset = NOT_CONNECTED
            if copies - 2 < len(reached):
                offset, other = reached[copies - 2]
                begin = max(begin, other)
            if offset != reported:
                self._reported[copies] = offset
                self._confirm(copies, offset, begin)
