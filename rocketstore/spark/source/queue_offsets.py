"""Queue offsets that a read begins and ends with: resolved once, and carried on by a stream's
offset."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rocketstore import CorruptRecordError, Store
from rocketstore.spark.errors import SparkFaceError, bad_option
from rocketstore.spark.source.options import EARLIEST, LATEST, QueueOffsets, ReadOptions
from rocketstore.values import RecordFilter

__all__ = [
    "Bounds",
    "Offsets",
    "asked_end",
    "asked_start",
    "between",
    "bounds_in",
    "digest",
    "ends",
    "first_offsets",
    "needed_from",
    "next_from",
    "next_offsets",
    "numbers_in",
    "starts",
]

logger = logging.getLogger(__name__)

#: (topic, queue id) → queue offset.
Offsets = dict[tuple[str, int], int]
#: (topic, queue id) → queue offsets [first, last) that are wanted; queues that are not named: all.
Bounds = dict[tuple[str, int], tuple[int, int]]
EVERYTHING = (0, 2**63 - 1)


def asked_start(store: Store, options: ReadOptions) -> int | QueueOffsets:
    """What startingOffsets says, or startingOffsetsByTimestamp, which wins.

    Raises:
        SparkFaceError: RS_BAD_OPTION: no message was stored then or later; RS_NO_TOPIC_THERE.
    """
    if options.starting_times is None:
        return options.starting
    late = options.late_is_latest
    return _by_time(store, options, "startingOffsetsByTimestamp", options.starting_times, late)


def asked_end(store: Store, options: ReadOptions) -> int | QueueOffsets:
    """The same of endings, where a time after the last message means the end."""
    if options.ending_times is None:
        return options.ending
    return _by_time(store, options, "endingOffsetsByTimestamp", options.ending_times, True)


def _by_time(
    store: Store, options: ReadOptions, name: str, times: QueueOffsets, late: bool
) -> QueueOffsets:
    found: QueueOffsets = {}
    for topic, queues in times.items():
        for queue_id, time_ms in queues.items():
            if queue_id not in store.queues(topic):
                found.setdefault(topic, {})[queue_id] = EARLIEST  # `_settled` says what it means
                continue
            offset = store.offset_at(topic, queue_id, time_ms)
            if offset >= store.max_queue_offset(topic, queue_id) and not late:
                allowed = f"{topic!r}/{queue_id} has no message of {time_ms} or later"
                strategy = "startingOffsetsByTimestampStrategy=latest begins at its end"
                raise bad_option(name, time_ms, f"{allowed}; {strategy}")
            found.setdefault(topic, {})[queue_id] = offset
    return found


def starts(
    store: Store, options: ReadOptions, offsets: QueueOffsets, end: int | None = None
) -> tuple[Offsets, int]:
    """First queue offsets that are read, and the physical offset at which a scan may begin: the
    smallest of the first messages.

    Args:
        offsets: of the option startingOffsets.
        end: where the log ends for the reader, and what "latest" means; None: its visible end. A
            scan begins there at the latest.

    Raises:
        SparkFaceError: RS_NO_TOPIC_THERE; RS_DATA_LOST: the store has trimmed the offset; both
            unless failOnDataLoss is false. RS_BAD_OPTION: the offset is beyond the end of its
            queue.
    """
    firsts: Offsets = {}
    physical = [store.visible_offset if end is None else end]
    for asked in _settled(store, options, "startingOffsets", offsets, end):
        topic, queue_id, offset = asked.topic, asked.queue_id, asked.offset
        if offset < asked.low:
            lost = (
                f"messages {offset} … {asked.low - 1} of {topic!r}/{queue_id} are not kept any more"
            )
            if options.fail_on_data_loss:
                raise SparkFaceError("RS_DATA_LOST", f"{lost} (failOnDataLoss=false: go on)")
            logger.warning("%s", lost)
            offset = asked.low
        firsts[topic, queue_id] = offset
        if offset < asked.high:
            found = _physical_offset(store, topic, queue_id, offset)
            physical.append(store.begin_offset if found is None else found)
    begin = min(physical) if _all_named(store, options, offsets) else store.begin_offset
    return firsts, begin


def ends(store: Store, options: ReadOptions, offsets: QueueOffsets) -> Offsets:
    """Queue offsets before which a read ends. `offsets`: of the option endingOffsets.

    Raises:
        SparkFaceError: RS_NO_TOPIC_THERE unless failOnDataLoss is false; RS_BAD_OPTION: the offset
            is beyond the end of its queue.
    """
    settled = _settled(store, options, "endingOffsets", offsets, None)
    return {(asked.topic, asked.queue_id): asked.offset for asked in settled}


def between(firsts: Offsets, lasts: Offsets) -> Bounds:
    """Bounds of the queues that have a first offset, a last one or both."""
    return {
        queue: (firsts.get(queue, EVERYTHING[0]), lasts.get(queue, EVERYTHING[1]))
        for queue in {**firsts, **lasts}
    }


class _AskedOffset(NamedTuple):
    """A queue offset that an option names, as a number; `low` and `high` are the bounds of its
    queue."""

    topic: str
    queue_id: int
    offset: int
    low: int
    high: int


def _settled(
    store: Store, options: ReadOptions, name: str, offsets: QueueOffsets, end: int | None
) -> Iterator[_AskedOffset]:
    """The offsets of option `name` as numbers, without those of queues that do not exist."""
    accept = RecordFilter.of(**options.wanted).acceptance()
    for topic, queues in offsets.items():
        if accept is not None and accept(topic) is False and store.queues(topic):
            # No error: several reads may share one JSON.
            logger.warning("%s names topic %r, which is not among those that are read: its offsets "
                           "have no effect", name, topic)  # fmt: skip
        for queue_id, asked in queues.items():
            if queue_id not in store.queues(topic):
                if options.fail_on_data_loss:
                    raise SparkFaceError(
                        "RS_NO_TOPIC_THERE",
                        f"{options.path} has no queue {queue_id} of {topic!r}, which {name} names; "
                        "leave it out, or give failOnDataLoss=false",
                    )
                continue
            low = store.min_queue_offset(topic, queue_id)
            high = store.max_queue_offset(topic, queue_id)
            offset = low if asked == EARLIEST else asked
            if asked == LATEST:
                offset = high if end is None else next_from(store, topic, queue_id, end)
            if offset > high:
                allowed = f"at most {high}, where {topic!r}/{queue_id} ends; -1 means its end"
                raise bad_option(name, offset, allowed)
            yield _AskedOffset(topic, queue_id, offset, low, high)


def _all_named(store: Store, options: ReadOptions, offsets: QueueOffsets) -> bool:
    """Whether every queue that is wanted has an offset; those that have none are read from their
    beginning. Records of topics that are not named may have no queue at all."""
    topics = options.wanted.get("topics")
    accept = RecordFilter.of(**options.wanted).acceptance()
    if topics is None or accept is None or not set(topics) <= set(offsets):
        return False
    for topic in topics:
        wanted, there = accept(topic), set(store.queues(topic))
        if isinstance(wanted, frozenset):
            there &= wanted
        if wanted is not False and not there <= set(offsets[topic]):
            return False
    return True


def needed_from(store: Store, bounds: Bounds, begin: int) -> Bounds:
    """Those whose first offset still leaves out a message at `begin` or after it. An offset that
    was trimmed, or is of a queue that does not exist, leaves nothing out."""
    found: Bounds = {}
    for (topic, queue_id), (first, last) in bounds.items():
        if queue_id not in store.queues(topic):
            continue
        if first <= store.min_queue_offset(topic, queue_id):
            continue
        if first <= store.max_queue_offset(topic, queue_id):
            # The last message that is left out may be in one record with the first that is not.
            place = _physical_offset(store, topic, queue_id, first - 1)
            if place is not None and place < begin:
                continue
        found[topic, queue_id] = first, last
    return found


def _physical_offset(store: Store, topic: str, queue_id: int, offset: int) -> int | None:
    """Of the message at a queue offset; None when it cannot be read."""
    with store.consumer(topic, queue_id=queue_id, offset=offset) as consumer:
        try:
            return next((m.physical_offset for m in consumer.poll(max_messages=1)), None)
        except CorruptRecordError:
            return None


def next_from(store: Store, topic: str, queue_id: int, begin: int) -> int:
    """The first queue offset whose message begins at `begin` or after it. A store that loses its
    last messages gives their queue offsets to others."""
    low = store.min_queue_offset(topic, queue_id)
    after = store.max_queue_offset(topic, queue_id)
    step = 1  # streams are near the end, and each look takes most of a millisecond
    while low < after:
        middle = max((low + after) // 2, after - step)
        place = _physical_offset(store, topic, queue_id, middle)
        if place is not None and place < begin:
            low = middle + 1
        else:
            after, step = middle, 2 * step
    return low


def next_offsets(store: Store, wanted: Mapping[str, Any], place: int) -> QueueOffsets:
    """In each queue that is wanted the offset of the first message at a place of the log or after
    it."""
    accept = RecordFilter.of(**wanted).acceptance()
    found: QueueOffsets = {}
    for topic in store.topics():
        chosen = accept is None or accept(topic)
        for queue_id in store.queues(topic):
            if chosen is True or (chosen is not False and queue_id in chosen):
                row = found.setdefault(topic, {})
                row[queue_id] = next_from(store, topic, queue_id, place)
    return found


def digest(offsets: QueueOffsets) -> int:
    """Of next offsets: another one where a message came to any queue."""
    rows = [(topic, row) for topic, queues in offsets.items() for row in queues.items() if row[1]]
    return zlib.crc32(json.dumps(sorted(rows)).encode())


# ---- in a stream's offset ----


def first_offsets(bounds: Bounds) -> dict[str, dict[str, int]]:
    """As JSON: topic → queue id → first queue offset."""
    found: dict[str, dict[str, int]] = {}
    for (topic, queue_id), (first, _) in bounds.items():
        found.setdefault(topic, {})[str(queue_id)] = first
    return found


def bounds_in(found: Mapping[str, Mapping[str, Any]]) -> Bounds:
    """The inverse. Raises ValueError, TypeError or AttributeError for anything else."""
    return {
        (topic, int(queue_id)): (int(first), EVERYTHING[1])
        for topic, queues in found.items()
        for queue_id, first in queues.items()
    }


def numbers_in(offsets: QueueOffsets) -> Bounds:
    """Of an option, those that mean the same whenever they are looked at: neither earliest nor
    latest."""
    return {
        (topic, queue_id): (first, EVERYTHING[1])
        for topic, queues in offsets.items()
        for queue_id, first in queues.items()
        if first >= 0
    }
