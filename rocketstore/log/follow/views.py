"""The positions and the index of a store that another process writes, as a store shows them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from rocketstore.log.follow.follower import Follower
from rocketstore.log.index.store import IndexStore

__all__ = ["FollowerIndex", "FollowerPositions"]

#: Entries of the index that each look at a live store takes.
PIECE: Final = 64


class FollowerPositions:
    """The positions of a followed log, as far as this process knows them."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def _visible(self) -> int:
        self._follower.look()
        return self._follower.end()

    @property
    def wrote(self) -> int:
        """The visible position: a follower does not know how much more the writer has."""
        return self._visible()

    committed = visible = wrote

    @property
    def dispatched(self) -> int:
        """Where a live writer's dispatch is; without one, the visible position."""
        visible = self._visible()
        dispatched = self._follower.dispatched()
        return visible if dispatched is None else min(dispatched, visible)

    indexed = dispatched

    @property
    def flushed(self) -> int:
        """The flushed position of a live writer; without one, all of the log."""
        visible = self._visible()
        flushed = self._follower.flushed()
        return visible if flushed is None else min(flushed, visible)

    @property
    def minimum(self) -> int:
        return self._follower.minimum()


class FollowerIndex:
    """The index files of a live store; each look-up loads new ones first."""

    def __init__(self, index: IndexStore, follower: Follower) -> None:
        self._index = index
        self._follower = follower

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, /, *, newest: bool
    ) -> Iterator[int]:
        """Begins again after a recovery or rebuild: then candidates that it gave before come again."""
        self._follower.wait_indexed()
        steady = self._follower.steady
        walk: Iterator[int] = iter(())
        begun: object = self  # no run yet

        def look() -> list[int]:
            nonlocal walk, begun
            if begun != steady.run:
                begun = steady.run
                self._index.load()
                walk = self._index.candidates(topic, key, begin_ms, end_ms, newest=newest)
            return list(itertools.islice(walk, PIECE))

        while piece := steady.of(look):
            yield from piece

    def close(self) -> None:
        self._index.close()
