"""Waits a moment for the process that writes a store, where queues or index lack its records."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from rocketstore._native.sync.positions import Positions
from rocketstore.errors import StoreBehindError
from rocketstore.log.layout.paths import StoreLayout

__all__ = ["wait_for_writer"]

#: Longest time without progress before dispatch or the index of the writer counts as stopped, and
#: longest wait in all, seconds.
STALLED_S: Final = 1.0
LONGEST_S: Final = 10.0
#: Longest wait before the writer is looked at again, ms: one that was killed wakes no one.
LOOK_MS: Final = 100


def wait_for_writer(
    layout: StoreLayout,
    part: str,
    look: Callable[[], tuple[int, int, Positions] | None],
    target: int,
    *,
    any_move: bool,
) -> None:
    """Waits until the writer's position has reached `target`, or with `any_move` has moved.

    `look`: where it is now, the changes of the page seen before, and the page; None: no writer says
    so.

    Raises:
        StoreBehindError: the position does not move.
    """
    last: int | None = None
    limit = time.monotonic() + LONGEST_S
    deadline = limit
    while (found := look()) is not None:
        at, changes, positions = found
        if at >= target or (any_move and last is not None and at > last):
            return
        now = time.monotonic()
        if last is None or at > last:
            last, deadline = at, min(limit, now + STALLED_S)
        if now >= deadline:
            reason = f"the process that writes stands at physical offset {at} of {target}"
            raise StoreBehindError(str(layout.root), part, reason)
        positions.wait_change(changes, min(LOOK_MS, int((deadline - now) * 1000) + 1))
