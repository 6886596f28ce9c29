"""What a reader keeps of a history with a place in the log, to know later whether it is still there.

A replica is cut where its master's history is another one, and grows on: the same place may be of
other messages then.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from rocketstore.errors import ReplicationError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.protocol.epochs import Epoch
from rocketstore.replication.role.state import load_state

__all__ = ["epochs_before", "parted_at"]

#: As many epochs are kept with a place. Where a store has none of them any more, nothing is known.
EPOCHS_MOST: Final = 8


def epochs_before(path: str | os.PathLike[str], place: int) -> list[list[Any]]:
    """[id, start] of the last epochs to which what lies before `place` belongs; none of a store that
    was no master and no replica, or whose role cannot be read."""
    return [[one.id.hex(), one.start] for one in _epochs(path) if one.start < place][-EPOCHS_MOST:]


def parted_at(
    path: str | os.PathLike[str], place: int, epochs: Iterable[tuple[str, int]]
) -> int | None:
    """Where, before `place`, the history of the store leaves the one that had `epochs`. None where
    it does not, or where that is not known."""
    here = _epochs(path)
    starts = [one.start for one in here]
    ends = {one.id.hex(): end for one, end in zip(here, [*starts[1:], place], strict=False)}
    end = place
    for name, start in reversed(list(epochs)):
        if name in ends:
            end = min(end, ends[name])
            return end if end < place else None
        end = int(start)
    return None


def _epochs(path: str | os.PathLike[str]) -> tuple[Epoch, ...]:
    try:
        state = load_state(StoreLayout(Path(path)))
    except ReplicationError:  # messages of such a store can be read
        return ()
    return () if state is None else state.epochs
