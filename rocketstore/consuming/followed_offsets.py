"""Stored offsets of a store that another process writes."""

from __future__ import annotations

from rocketstore.consuming.commit_journal import journal_stamp
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.log.layout.identity import file_state
from rocketstore.log.layout.lock import rocketstore_wrote_last
from rocketstore.log.layout.paths import StoreLayout

__all__ = ["FollowerOffsets"]


class FollowerOffsets(ConsumerOffsets):
    """The table of a store that another process may write: read again when its file is another
    one."""

    def __init__(self, layout: StoreLayout) -> None:
        super().__init__(layout, read_only=True)
        self._seen: tuple[object, ...] | None = None

    def get(self, topic: str, group: str) -> dict[int, int]:
        self.look()
        return super().get(topic, group)

    def groups(self, topic: str | None = None) -> tuple[str, ...]:
        self.look()
        return super().groups(topic)

    def look(self) -> None:
        """A writer replaces the file; RocketMQ moves it away before it puts the next one there."""
        seen = self._stamp()
        if seen != self._seen:
            self.load(ours=rocketstore_wrote_last(self._layout))
            self._seen = seen  # last: other threads ask meanwhile

    def _stamp(self) -> tuple[object, ...]:
        """Changes with each commit: a merge makes a new file, other commits are in the journal."""
        theirs = file_state(self._layout.consumer_offsets)
        return theirs, journal_stamp(self._layout.group_offsets)
