"""The positions and the index of a store that another process writes, as a store shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstore.log.follow.follower import Follower
    from rocketstore.log.index.store import IndexStore

__all__ = ["FollowerIndex", "FollowerPositions"]


class FollowerPositions:
    """The positions of a followed log, as far as this process knows them."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def _visible(self) -> int:
        self._follower.catch_up()
        return self._follower.end()

    @property
    def wrote(self) -> int:
        """The visible position: a follower does not know how much more the writer has."""
        return self._visible()

    committed = visible = dispatched = indexed = wrote

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
    """The index files of a live store; each query loads new ones first."""

    def __init__(self, index: IndexStore) -> None:
        self._index = index

    def query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, /
    ) -> Sequence[int]:
        self._index.load()
        return self._index.query(topic, key, begin_ms, end_ms, limit)

    def close(self) -> None:
        self._index.close()
