"""Reading a queue: units to records, with RocketMQ's read statuses (format 16).

A reader works on a `ReadSource`: the store of this process, or a store that another process writes
(`log.follow.follower`). It keeps no state of its own, so any number of threads may share one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from rocketstore._native.format.message import Message
from rocketstore._native.format.queue_file import PRE_BLANK, UNIT_SIZE, read_unit
from rocketstore._native.format.queue_reader import UnitRun
from rocketstore._native.format.scanner import read_message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import (
    CorruptRecordError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    ReadFailedError,
    StoreClosedError,
)
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC
from rocketstore.log.queues.multi_dispatch import offset_in_queue
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.log.read.batch_reader import batch_end, fetch_batches
from rocketstore.log.read.column_reader import MISSING_SEGMENT
from rocketstore.log.read.fetch_result import (
    FOUND,
    MESSAGE_WAS_REMOVING,
    NO_MATCHED_LOGIC_QUEUE,
    NO_MATCHED_MESSAGE,
    NO_MESSAGE_IN_QUEUE,
    OFFSET_FOUND_NULL,
    OFFSET_OVERFLOW_BADLY,
    OFFSET_OVERFLOW_ONE,
    OFFSET_TOO_SMALL,
    Fetch,
)
from rocketstore.log.read.named_topics import check_named, require_queue, tell_missing
from rocketstore.log.read.source import QueueView, ReadSource, segment_at
from rocketstore.log.read.time_search import Boundary, find_offset
from rocketstore.log.read.unit_place import (
    FILTER_UNITS,
    UnitPlace,
    messages_at,
    next_file,
    note_place,
)

__all__ = ["Reader"]


class Reader:
    """Fetches messages of a source by queue offset or physical offset."""

    __slots__ = ("_path", "_record", "_source")

    def __init__(
        self,
        source: ReadSource,
        record_get: Callable[[int, int], None] | None = None,
        path: str = "",
    ) -> None:
        """`record_get(messages, duration_ns)` is called after each fetch. `path`: of the store, for
        its log lines."""
        self._source = source
        self._record = record_get
        self._path = path

    @property
    def source(self) -> ReadSource:
        return self._source

    def look_for(self, topic: str, queue_id: int | None = None, *, must_exist: bool) -> None:
        """Looks at a name that a user reads by.

        Raises:
            InvalidTopicError: no topic can have this name, and the store has none such.
            QueueNotFoundError: `must_exist`, and there is no such topic or queue.
        """
        check_named(topic, self._source.queues)
        if must_exist:
            require_queue(self._source, topic, queue_id)

    def tell_missing(self, topic: str) -> None:
        """Says once that nothing was found because the topic is not there, if it is not."""
        if not self._source.queues(topic):
            tell_missing(self._path, topic)

    def fetch(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tags_codes: frozenset[int] | None = None,
    ) -> Fetch:
        """Up to `max_messages` messages of one queue from `offset` on, within one queue file.

        Statuses and next offsets are those of format 16. With `tags_codes`, only messages whose
        unit has one of these codes: different tags can have one code, so the caller still compares
        the tag. A record that does not hold raises `CorruptRecordError`, one that the disk does not
        give back `ReadFailedError`, but only once it is the first one.
        """
        began = time.monotonic_ns()
        look = partial(self._fetch, topic, queue_id, offset, max_messages, tags_codes)
        try:
            found = look()
        except (CorruptRecordError, ReadFailedError) as error:
            found = self._source.again(look, error)
        if self._record is not None:
            self._record(len(found.messages), time.monotonic_ns() - began)
        return found

    def _fetch(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        tags_codes: frozenset[int] | None,
    ) -> Fetch:
        queue = self._queue_at(topic, queue_id, offset)
        if queue is None:
            return Fetch([], 0, NO_MATCHED_LOGIC_QUEUE)
        maximum = queue.max_offset
        if maximum == 0:
            return Fetch([], 0, NO_MESSAGE_IN_QUEUE)
        if offset < (minimum := queue.min_offset):
            return Fetch([], minimum, OFFSET_TOO_SMALL)
        if offset == maximum:
            return Fetch([], offset, OFFSET_OVERFLOW_ONE)
        if offset > maximum:
            return Fetch([], maximum, OFFSET_OVERFLOW_BADLY)
        found = Fetch([], offset, OFFSET_TOO_SMALL)
        try:
            if isinstance(queue, BatchQueue):
                found = fetch_batches(self._source, queue, topic, queue_id, offset, max_messages)
            else:
                found = self._fetch_units(
                    queue, topic, queue_id, offset, maximum, max_messages, tags_codes
                )
        except (CorruptRecordError, ReadFailedError, StoreClosedError):
            self._source.check(now=True)
            if offset >= queue.min_offset:
                raise
        if offset < (minimum := queue.min_offset):
            # Trimmed away since the look: what is left is not all that was asked for.
            return Fetch([], minimum, OFFSET_TOO_SMALL)
        return found

    def _fetch_units(
        self,
        queue: QueueView,
        topic: str,
        queue_id: int,
        offset: int,
        maximum: int,
        max_messages: int,
        tags_codes: frozenset[int] | None,
    ) -> Fetch:
        located = queue.locate(offset)
        if located is None:
            return Fetch([], min(maximum, next_file(queue, offset)), OFFSET_FOUND_NULL)
        file, position, available = located
        wanted = max_messages if tags_codes is None else max(max_messages, FILTER_UNITS)
        count = min(wanted, available, maximum - offset)
        place = UnitPlace(topic, queue_id, offset, file, position, queue.extension)
        return self._read(place, count, max_messages, tags_codes)

    def run_from(self, topic: str, queue_id: int, offset: int) -> UnitRun | None:
        """The units from an offset on within one queue file, for `go_on`; None if there are
        none."""
        source = self._source
        queue = source.queue(topic, queue_id)
        if queue is None or isinstance(queue, BatchQueue) or topic == SCHEDULE_TOPIC:
            return None  # of the last one a fetch reads more than the records
        maximum = queue.max_offset
        inside = queue.min_offset <= offset < maximum
        if (located := queue.locate(offset) if inside else None) is None:
            return None
        file, position, available = located
        minimum, visible = source.minimum(), source.visible()
        return UnitRun(
            file,
            position,
            min(available, maximum - offset),
            source.segment_size,
            topic=topic.encode(),
            queue_id=queue_id,
            first_queue_offset=offset,
            log_minimum=minimum,
            limit_offset=visible,
            verify=source.verify,
        )

    def go_on(self, run: UnitRun, max_messages: int) -> bool:
        """Whether the next batch of a run has messages. After False the caller fetches, which says
        why: no more messages, a trimmed log, or a damaged record."""
        began, source = time.monotonic_ns(), self._source
        if source.minimum() != run.log_minimum:
            return False
        try:
            # In this order: the files reach at least as far as what was visible then.
            found = run.fetch(max_messages, source.segments())
        except (CorruptRecordError, ReadFailedError, StoreClosedError):
            return False
        if source.minimum() != run.log_minimum:
            return False
        if self._record is not None:
            self._record(found, time.monotonic_ns() - began)
        return found > 0

    def bounds(self, topic: str, queue_id: int, *, catch_up: bool = True) -> tuple[int, int]:
        """Least and next queue offset, after a catch-up; (0, 0) for a queue that does not exist."""
        self._source.check()
        if catch_up:
            self._source.catch_up()
        queue = self._source.queue(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def get(self, physical_offset: int, *, verify: int | None = None) -> Message:
        """The message whose record begins at a physical offset."""
        source = self._source
        source.check()
        if physical_offset >= source.visible():
            source.catch_up()
        # In this order: the files then reach at least as far as `visible`.
        minimum, visible = source.minimum(), source.visible()
        file = segment_at(source.segments(), source.segment_size, physical_offset)
        if not minimum <= physical_offset < visible:
            status = OFFSET_TOO_SMALL if physical_offset < minimum else OFFSET_OVERFLOW_BADLY
            file = None  # an error that is kept does not keep the file
            raise OffsetOutOfRangeError(physical_offset, minimum, visible, status)
        if file is None:
            if physical_offset < (minimum := source.minimum()):  # trimmed meanwhile
                raise OffsetOutOfRangeError(physical_offset, minimum, visible, OFFSET_TOO_SMALL)
            raise CorruptRecordError(physical_offset, MISSING_SEGMENT)
        limit = min(file.size, visible - file.start_offset)
        position = physical_offset - file.start_offset
        try:
            return read_message(
                file, position, limit, verify=source.verify if verify is None else verify
            )
        except CorruptRecordError as error:
            if error.reason in ("body crc", "record crc"):
                raise
            text = f"no record begins at physical offset {physical_offset} ({error.reason})"
            raise MessageNotFoundError(text) from error
        finally:
            file = None

    def first_store_time(self, segment: MappedFile) -> int | None:
        """Store time in ms of the record that a log file begins with; None for one that cannot be
        believed."""
        limit = min(segment.size, self._source.visible() - segment.start_offset)
        if limit <= 0:
            return None
        try:
            return read_message(segment, 0, limit, verify=self._source.verify).store_timestamp_ms
        except (CorruptRecordError, ReadFailedError):
            return None

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        """Physical begin and end of the record that a unit points to; None for no unit or a
        pre-blank, and in a queue of batches."""
        queue = self._source.queue(topic, queue_id)
        if queue is None or isinstance(queue, BatchQueue):
            return None
        if not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        located = queue.locate(queue_offset)
        if located is None:
            return None
        file, position, _ = located
        unit = read_unit(file, position // UNIT_SIZE)
        if file.closed:
            self._source.check()
            return None  # trimmed away meanwhile
        return None if unit is None or unit[1] == PRE_BLANK[1] else (unit[0], unit[0] + unit[1])

    def unit_end(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Physical end of the record that a unit points to; None for no unit or a pre-blank."""
        queue = self._source.queue(topic, queue_id)
        if isinstance(queue, BatchQueue):
            inside = queue.min_offset <= queue_offset < queue.max_offset
            return batch_end(queue, queue_offset) if inside else None
        unit = self.unit_at(topic, queue_id, queue_offset)
        return None if unit is None else unit[1]

    def offset_at(
        self, topic: str, queue_id: int, when_ms: int, *, boundary: Boundary = "lower"
    ) -> int:
        """Queue offset for a time (`time_search.offset_at`); 0 for a queue that does not exist."""
        self.bounds(topic, queue_id)
        return find_offset(self._source, topic, queue_id, when_ms, boundary)

    def _queue_at(self, topic: str, queue_id: int, offset: int) -> QueueView | BatchQueue | None:
        """The queue; after a catch-up if the offset has not arrived yet."""
        source = self._source
        source.check()
        queue = source.queue(topic, queue_id)
        if queue is None or offset >= queue.max_offset:
            source.catch_up()
            queue = source.queue(topic, queue_id)
        return queue

    def _read(
        self, place: UnitPlace, count: int, max_messages: int, tags_codes: frozenset[int] | None
    ) -> Fetch:
        """Records of `count` units from a place on; fewer when one of them does not hold."""
        messages: list[Message] | None = None
        while messages is None:
            try:
                messages = messages_at(self._source, place, count, tags_codes)
            except (CorruptRecordError, ReadFailedError) as error:
                if count == 1:
                    at = place.topic, place.queue_id, place.offset
                    note_place(error, at, place.offset + 1)
                    raise
                # Messages before the fault are returned first.
                count //= 2
        if len(messages) > max_messages:
            del messages[max_messages:]
            last = offset_in_queue(messages[-1], place.topic, place.queue_id)
            return Fetch(messages, max(last, place.offset) + 1, FOUND)
        if messages:
            return Fetch(messages, place.offset + count, FOUND)
        status = MESSAGE_WAS_REMOVING if tags_codes is None else NO_MATCHED_MESSAGE
        return Fetch(messages, place.offset + count, status)
