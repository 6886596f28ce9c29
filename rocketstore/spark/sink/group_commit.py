"""Offsets of a consumer group that a stream has reached: stored by its own process, or by the one that
has the store open and serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketstore import Store
from rocketstore.spark.sink.handover import AskedOffsets, Request
from rocketstore.spark.sink.store_access import no_step, reach

__all__ = ["commit_group", "store_offsets"]

#: Longest wait for the store, seconds: the stream waits meanwhile.
REACH_TIMEOUT_S: Final = 5.0


def commit_group(path: str, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Stores next queue offsets by topic and queue id for a group, as `store_offsets`, here or in
    the process that serves the store.

    Raises:
        SparkFaceError: RS_STORE_LOCKED, RS_HANDED_OVER; RS_OWNER_FAILED: it could not store them.
        RocketStoreError, OSError: this process could not.
    """
    request = Request(path, AskedOffsets(group, offsets))
    store = reach(path, request, REACH_TIMEOUT_S, no_step)
    if store is None:
        request.answer()
        return
    with store:
        try:
            store_offsets(store, group, offsets)
        finally:
            request.forget()


def store_offsets(store: Store, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Stores them in an open store. A larger one that is there stays: the group may have been
    further. One of no queue, or beyond the end of its queue, is left out."""
    for topic, wanted in offsets.items():
        stored, there = store.committed(topic, group), store.queues(topic)
        later = {
            queue_id: offset
            for queue_id, offset in wanted.items()
            if queue_id in there
            and stored.get(queue_id, -1) < offset <= store.max_queue_offset(topic, queue_id)
        }
        if later:
            with store.consumer(topic, queue_ids=later, group=group) as consumer:
                consumer.commit(later)
