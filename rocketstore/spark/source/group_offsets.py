"""How far a stream has come, as offsets of a consumer group, for `rocketstore stat` and RocketMQ's
tools. The stream itself goes by its checkpoint and never reads them."""

from __future__ import annotations

import logging
import os

import numpy as np

import rocketstore
from rocketstore import RocketStoreError, Store
from rocketstore.scanning import NEEDED, messages_in
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import Bounds, kept
from rocketstore.spark.stores import store_uuid

__all__ = ["GroupOffsets"]

logger = logging.getLogger(__name__)

#: Batches that were planned and not committed; Spark has one at a time.
PLANNED_MAX = 64
COLUMNS = ("topic", "queue_id", "queue_offset", *NEEDED)


class GroupOffsets:
    """The offsets of one streaming query; used by one thread. An error is logged once and never
    stops the stream: the next batch publishes what this one could not."""

    def __init__(self, options: ReadOptions, group: str) -> None:
        self._options = options
        self._group = group
        self._planned: dict[int, tuple[int, Bounds]] = {}
        #: Next queue offsets that are not published yet.
        self._next: dict[tuple[str, int], int] = {}
        self._warned: set[str] = set()

    def plan(self, begin: int, end: int, bounds: Bounds) -> None:
        """A batch covers [begin, end) of the log."""
        self._planned[end] = begin, bounds
        while len(self._planned) > PLANNED_MAX:
            del self._planned[min(self._planned)]

    def commit(self, end: int) -> None:
        """The batch that ends here is done. Of one that a run before has planned nothing is known:
        it is published with later messages of its queues."""
        begin, bounds = self._planned.pop(end, (end, {}))
        try:
            self._count(begin, end, bounds)
            if self._next:
                self._publish()
        except (RocketStoreError, OSError, ModuleNotFoundError) as error:
            # The driver may lack what unpacks an inner batch, although its tasks have it.
            self._warn_once(f"{error}")

    def _count(self, begin: int, end: int, bounds: Bounds) -> None:
        """Adds the offsets after the messages of a batch: those that it chose, and no others."""
        if begin >= end:
            return
        columns = rocketstore.scan(
            self._options.path,
            columns=COLUMNS,
            begin_offset=begin,
            end_offset=end,
            aligned=True,
            verify=False,
            on_damage="skip",
            **self._options.wanted,
        )
        for chunk, there in messages_in(columns):
            rows = kept(chunk, bounds) if bounds else np.ones(chunk.rows, bool)
            if there is not None:
                rows &= there
            topics, queue_ids = chunk["topic"], chunk["queue_id"]
            places = np.stack([topics.codes[rows], queue_ids[rows]])
            offsets = chunk["queue_offset"][rows]
            for code, queue_id in np.unique(places, axis=1).T.tolist():
                mine = (places[0] == code) & (places[1] == queue_id)
                key = (topics.values[code], queue_id)
                self._next[key] = max(self._next.get(key, 0), int(offsets[mine].max()) + 1)

    def _publish(self) -> None:
        path = self._options.path
        if not store_uuid(path):
            self._warn_once(
                "rocketstore has never written this store, and does not begin with it here"
            )
            return
        if os.path.exists(os.path.join(path, "abort")):
            self._warn_once("another process writes it, or it was not stopped cleanly")
            return
        with rocketstore.open(path, "r+", durability="os", deliver_delayed=False) as store:
            for (topic, queue_id), offset in sorted(self._next.items()):
                self._publish_one(store, topic, queue_id, offset)
        self._next.clear()

    def _publish_one(self, store: Store, topic: str, queue_id: int, offset: int) -> None:
        """A larger one that is there stays: the group may have been further with other messages."""
        if queue_id not in store.queues(topic):
            return
        with store.consumer(topic, queue_id=queue_id, group=self._group) as consumer:
            if consumer.positions[queue_id] < offset <= store.max_queue_offset(topic, queue_id):
                consumer.seek(offset, queue_id=queue_id)
                consumer.commit()

    def _warn_once(self, why: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            logger.warning(
                "offsets of group %s are not published in %s: %s",
                self._group, self._options.path, why,
            )  # fmt: skip
