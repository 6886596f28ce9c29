"""`rocketstore/blocked_queues`: queues that take no units while a writer has the store open (format.md
20.12). The writer replaces the file, readers in other processes look at it, and the next open for
writing removes it before it dispatches.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from rocketstore.errors import StoreBehindError
from rocketstore.log.layout.lock import rocketstore_wrote_last
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_state_file, remove_state_file, write_state_file
from rocketstore.values.bounded_json import LIMITS, parse_json

__all__ = ["BlockedQueues", "FollowedBlocks"]

logger = logging.getLogger(__name__)

#: Topic and queue id.
Place = tuple[str, int]


class BlockedQueues:
    """Queues of this process that take no units before the next open, by place: why. Dispatch
    passes over their records, and each read of one raises. While there are any no checkpoint
    speaks of units, so the next open looks for those that are missing."""

    def __init__(self, layout: StoreLayout, *, writes: bool) -> None:
        """`writes`: a state file names the queues to readers in other processes."""
        self._layout = layout
        self._writes = writes
        self.places: dict[Place, str] = {}

    def begin(self) -> None:
        """What an earlier run wrote counts no more."""
        if self._writes:
            remove_state_file(self._layout.blocked_queues)

    def add(self, topic: str, queue_id: int, why: str) -> None:
        """Called by the dispatcher."""
        logger.error("%s/%d takes no units: %s", topic, queue_id, why)
        self.places = {**self.places, (topic, queue_id): why}
        if not self._writes:
            return
        rows = [[*place, reason] for place, reason in sorted(self.places.items())]
        try:
            write_state_file(self._layout, self._layout.blocked_queues, json.dumps(rows))
        except OSError as error:
            logger.error("%s: readers are not told: %s", self._layout.blocked_queues, error)

    def check(self, topic: str, queue_id: int) -> None:
        """Raises:
        StoreBehindError: the queue is blocked, and its messages are in the log only.
        """
        if self.places:
            _check(self._layout, self.places, (topic, queue_id))

    @property
    def behind(self) -> tuple[tuple[str, str], ...]:
        """The queues, as errors name them, and why."""
        return tuple((_part(place), why) for place, why in sorted(self.places.items()))


def _check(layout: StoreLayout, blocked: Mapping[Place, str], place: Place) -> None:
    why = blocked.get(place)
    if why is not None:
        remedy = "; then close the store in the process that writes, and open it again"
        raise StoreBehindError(str(layout.root), _part(place), f"{why}{remedy}")


def _part(place: Place) -> str:
    return f"consume queue {place[0]}/{place[1]}"


class FollowedBlocks:
    """The queues that the writer of a store names as blocked, for a reader without the lock."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._seen: tuple[int, int] | None = None
        self.places: dict[Place, str] = {}

    def look(self) -> None:
        """Reads the file where it is another one."""
        path = self._layout.blocked_queues
        try:
            found = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            self._seen, self.places = None, {}
            return
        stamp = found.st_ino, found.st_mtime_ns
        if not rocketstore_wrote_last(self._layout):
            self.places = {}  # another program has made the queues since
            return
        if stamp == self._seen:
            return
        try:
            rows: Any = parse_json(read_state_file(path, LIMITS[path.name].size), LIMITS[path.name])
            self.places = {(str(topic), int(queue_id)): str(why) for topic, queue_id, why in rows}
        except FileNotFoundError:
            return  # the next look sees that
        except (OSError, TypeError, ValueError, OverflowError) as error:
            logger.warning("%s is no use: %s", path, error)
        self._seen = stamp

    def check(self, topic: str, queue_id: int) -> None:
        """As `BlockedQueues.check`, by the last look."""
        if self.places:
            _check(self._layout, self.places, (topic, queue_id))
