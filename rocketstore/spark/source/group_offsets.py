"""How far a stream has come, as offsets of a consumer group: they hold the log for it, and
`rocketstore stat` and RocketMQ's tools show them. The stream itself goes by its checkpoint and never
reads them."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from rocketstore import RocketStoreError
from rocketstore.spark.sink.group_commit import commit_group
from rocketstore.spark.source.options import QueueOffsets
from rocketstore.spark.source.stream_progress import Progress
from rocketstore.spark.stores import store_uuid

__all__ = ["GroupOffsets"]

logger = logging.getLogger(__name__)

#: Seconds until offsets that could not be published are tried again, where nothing new came.
AGAIN_S: Final = 10.0


class GroupOffsets:
    """The offsets of one streaming query; used by one thread. An error is logged once and never
    stops the stream: the next micro-batch publishes what this one could not."""

    def __init__(self, path: str, group: str) -> None:
        self._path = path
        self._group = group
        self._start: dict[str, Any] = {}
        self._published: QueueOffsets | None = None
        self._again_at = 0.0
        self._warned: set[str] = set()

    def publish(self, progress: Progress, start: dict[str, Any]) -> None:
        """Spark asks for a micro-batch that begins at `start`: the checkpoint has committed all
        before, in this run or in one before it."""
        if start == self._start and time.monotonic() < self._again_at:
            return
        self._start, self._again_at = start, time.monotonic() + AGAIN_S
        try:
            offsets = progress.queue_offsets(start)
            if offsets != self._published and self._can_be_reached():
                commit_group(self._path, self._group, offsets)
                self._published = offsets
        except (RocketStoreError, OSError, ModuleNotFoundError) as error:
            # The driver may lack what unpacks an inner batch, although its tasks have it.
            self._warn_once(f"{error}")

    def _can_be_reached(self) -> bool:
        if not store_uuid(self._path):
            self._warn_once(
                "rocketstore has never written this store, and does not begin with it here"
            )
            return False
        return True

    def _warn_once(self, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            logger.warning(
                "offsets of group %s are not stored in %s, so retention keeps the log for it: %s",
                self._group, self._path, why,
            )  # fmt: skip
