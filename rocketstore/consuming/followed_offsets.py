"""Stored offsets of a store that another process writes."""

from __future__ import annotations

import logging

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.consuming.commit_journal import journal_stamp
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.log.layout.identity import file_state
from rocketstore.log.layout.lock import rocketstore_wrote_last
from rocketstore.log.layout.paths import StoreLayout

__all__ = ["FollowerOffsets"]

logger = logging.getLogger(__name__)


class FollowerOffsets(ConsumerOffsets):
    """The table of a store that another process may write: read again when its file is another
    one."""

    def __init__(self, layout: StoreLayout) -> None:
        super().__init__(layout, read_only=True)
        self._seen: tuple[object, ...] | None = None
        # A thread that has read an older file does not put it in the place of a newer one.
        self._looking = SignalSafeLock("a look at stored offsets")
        self._unshared: set[str] = set()  # groups that the program's log has named

    def get(self, topic: str, group: str) -> dict[int, int]:
        self.look()
        return super().get(topic, group)

    def groups(self, topic: str | None = None) -> tuple[str, ...]:
        self.look()
        return super().groups(topic)

    def warn_of(self, topic: str, group: str) -> None:
        if group not in self._unshared:
            self._unshared.add(group)
            logger.warning(
                "%s: group %s is not shared with mode='r': each such consumer begins at its "
                "offsets, reads all messages and cannot commit; keep `positions`, or consume in "
                "the process that writes",
                self._layout.root,
                group,
            )
        super().warn_of(topic, group)

    def look(self) -> None:
        """A writer replaces the file; RocketMQ moves it away before it puts the next one there."""
        with self._looking() as nested:
            seen = self._stamp()
            if seen != self._seen:
                self.load(ours=rocketstore_wrote_last(self._layout))
                # Around a signal's handler the thread may have read before it, and looks again.
                self._seen = None if nested else seen

    def _stamp(self) -> tuple[object, ...]:
        """Changes with each commit: a merge makes a new file, other commits are in the journal."""
        theirs = file_state(self._layout.consumer_offsets)
        return theirs, journal_stamp(self._layout.group_offsets)
