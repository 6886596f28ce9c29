"""Offsets of a consumer group that a stream has reached: stored by its own process, or by the one that
has the store open and serves it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from rocketstore import Store
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.store_access import ask, open_for

__all__ = ["commit_group", "store_offsets"]

#: Longest wait for the answer of another process, seconds: the stream waits meanwhile.
ANSWER_S: Final = 5.0


def commit_group(path: str, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
    """Stores next queue offsets by topic and queue id for a group, as `store_offsets`, here or in
    the process that has the store. A store that was not stopped cleanly is not opened for them.

    Raises:
        SparkFaceError: RS_STORE_LOCKED, RS_HANDED_OVER; RS_OWNER_FAILED: it could not store them.
        RocketStoreError, OSError: this process could not; ConnectionResetError: the other one has ended.
    """
    if ask(path, "sink_offsets", {"group": group, "offsets": offsets}, ANSWER_S) is not None:
        return
    if os.path.exists(os.path.join(path, "abort")):
        raise SparkFaceError(
            "RS_STORE_LOCKED",
            "another process writes it and takes no offsets: open it there with shared=True, or "
            "call rocketstore.spark.serve(store) there; or it was not stopped cleanly",
        )
    with open_for(path) as store:
        store_offsets(store, group, offsets)


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
