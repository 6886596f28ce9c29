"""One batch queue: a unit of 46 bytes for each record, which holds one message or more (format
6.6).

The place of a unit says nothing about its queue offset, so units are searched by queue offset. This
module reads units and never writes them; another process may write them meanwhile.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.layout.listing import has_place, list_files, usual_size
from rocketstore.log.layout.paths import StoreLayout, is_safe_name, segment_name
from rocketstore.log.queues.directories import directory_names, is_queue_id
from rocketstore.log.read.fetch_result import ReadView

__all__ = [
    "BATCH_UNIT_SIZE",
    "BatchQueue",
    "BatchQueues",
    "BatchUnit",
    "MemoryBatchQueue",
    "batch_directory",
    "batch_topics",
    "batches_end",
    "decode_unit",
]


#: Physical offset, size, tags code, store time, queue offset of the first message, number of
#: messages, offset after compaction, reserved.
_UNIT: Final = struct.Struct(">qiqqqhii")
BATCH_UNIT_SIZE: Final = _UNIT.size


class BatchUnit(NamedTuple):
    """Where a record is, and which queue offsets it takes."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    base_offset: int
    message_count: int

    @property
    def physical_end(self) -> int:
        return self.physical_offset + self.size

    @property
    def next_offset(self) -> int:
        """Queue offset after its last message."""
        return self.base_offset + self.message_count

    @property
    def written(self) -> bool:
        whole = self.physical_offset >= 0 and self.size > 0
        return whole and self.base_offset >= 0 and self.message_count > 0

    def pack(self) -> bytes:
        """As it lies in a file."""
        return _UNIT.pack(*self, 0, 0)


def decode_unit(data: bytes) -> BatchUnit:
    return BatchUnit(*_UNIT.unpack(data)[:6])


class BatchQueue:
    """The units of one queue, by number. Threads may share it. Asking for a bound reads new
    units."""

    def __init__(
        self,
        directory: Path,
        view: Callable[[], ReadView],
        matches: Callable[[BatchUnit], bool] | None = None,
    ) -> None:
        """`matches`: whether a unit is that of its record, asked where no writer says how far the
        units are whole."""
        self._directory = directory
        self._view = view
        self._matches = matches
        self._lock = SignalSafeLock("a batch queue")
        self._files: dict[int, MappedFile] = {}
        self._file_size = 0
        self._units_per_file = 1
        self._tail: list[BatchUnit] = []
        self._epoch = -1
        self._first = self._end = self._tail_at = self._kept = 0

    # ---- bounds ----

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message whose record is kept."""
        with self._lock():
            self._refresh()
            if self._kept == self._end:
                return self._maximum()
            return max(0, self._unit(self._kept).base_offset)

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message; 0 without a unit."""
        with self._lock():
            self._refresh()
            return self._maximum()

    @property
    def physical_end(self) -> int:
        """End of the record of the last unit; -1 for an empty queue."""
        with self._lock():
            self._refresh()
            return self._unit(self._end - 1).physical_end if self._end > self._first else -1

    def from_offset(self, queue_offset: int, most: int) -> Sequence[BatchUnit]:
        """Up to `most` units from the one on that has a queue offset or, where it is missing, the
        next ones."""
        with self._lock():
            self._refresh()
            numbers = range(self._kept, self._end)
            at = bisect_right(numbers, queue_offset, key=self._base_of) - 1
            if at < 0 or self._unit(numbers[at]).next_offset <= queue_offset:
                at += 1
            return [self._unit(number) for number in numbers[at : at + most]]

    def close(self) -> None:
        """Closes the files."""
        with self._lock():
            for file in self._files.values():
                file.close()
            self._files.clear()
            self._first = self._end = self._tail_at = self._kept = 0
            self._epoch = -1

    def add_tail(self, units: Sequence[BatchUnit]) -> None:
        """Adds units in memory after those of the files, for records that a crash left without one."""
        with self._lock():
            self._refresh()
            self._tail += units
            self._end += len(units)
            self._epoch = -1

    # ---- units ----

    def _maximum(self) -> int:
        return self._unit(self._end - 1).next_offset if self._end > self._first else 0

    def _base_of(self, number: int) -> int:
        return self._unit(number).base_offset

    def _physical_of(self, number: int) -> int:
        return self._unit(number).physical_offset

    def _unit(self, number: int) -> BatchUnit:
        if self._tail and number >= self._tail_at:
            return self._tail[number - self._tail_at]
        start = number // self._units_per_file * self._file_size
        position = number % self._units_per_file * BATCH_UNIT_SIZE
        return decode_unit(self._files[start].read(position, BATCH_UNIT_SIZE))

    def _refresh(self) -> None:
        """Takes over what has come since."""
        view = self._view()
        if view.epoch == self._epoch:
            return
        if not self._tail:  # else the store has no writer
            if self._end % self._units_per_file == 0 or view.minimum > 0:
                self._list()
            self._advance(view)
        numbers = range(self._first, self._end)
        self._kept = self._first + bisect_left(numbers, view.minimum, key=self._physical_of)
        self._epoch = view.epoch

    def _list(self) -> None:
        """Which files there are, in order and without a gap from the last one back."""
        found = list_files(self._directory)
        size = self._file_size or usual_size(found) or 0
        if size < BATCH_UNIT_SIZE:
            return
        self._file_size, self._units_per_file = size, size // BATCH_UNIT_SIZE
        starts = [start for start, length in found if length == size and has_place(start, size)]
        for at in range(len(starts) - 1, 0, -1):
            if starts[at - 1] + size != starts[at]:
                starts = starts[at:]
                break
        files: dict[int, MappedFile] = {}
        for start in starts:
            file = self._files.pop(start, None) or self._open(start)
            if file is None:
                files.clear()  # it was taken away while we looked: so were all before it
            else:
                files[start] = file
        for gone in self._files.values():
            gone.close()
        self._files = files
        self._first = min(files) // size * self._units_per_file if files else self._end
        self._end = max(self._end, self._first)

    def _open(self, start: int) -> MappedFile | None:
        try:
            path = str(self._directory / segment_name(start))
            file = MappedFile.open(path, start, self._file_size, "read")
        except (FileNotFoundError, ValueError):
            return None
        file.close_descriptor()
        return file

    def _advance(self, view: ReadView) -> None:
        """Moves the end after the last written unit of a record that readers may see."""
        before, each = self._end, self._units_per_file
        while self._end // each * self._file_size in self._files:
            stop = (self._end // each + 1) * each
            numbers = range(self._end, stop)
            self._end += bisect_left(numbers, True, key=lambda n: not self._good(n, view.visible))
            if self._end < stop:
                break
        if view.dispatched is None and self._matches is not None:
            while self._end > before and not self._matches(self._unit(self._end - 1)):
                self._end -= 1
        self._tail_at = self._end

    def _good(self, number: int, visible: int) -> bool:
        unit = self._unit(number)
        return unit.written and unit.physical_end <= visible


class MemoryBatchQueue(BatchQueue):
    """The units of one queue, made from a log that does not change: no file is looked at."""

    def __init__(self, directory: Path, view: Callable[[], ReadView], units: bytes) -> None:
        super().__init__(directory, view)
        self._units = units
        self._end = len(units) // BATCH_UNIT_SIZE

    def _unit(self, number: int) -> BatchUnit:
        at = number * BATCH_UNIT_SIZE
        return decode_unit(self._units[at : at + BATCH_UNIT_SIZE])

    def _refresh(self) -> None:
        """All of them are of records that the log keeps."""


# All batch queues of a store (format 6.6); a broker may keep them instead of plain consume queues.
#
# They are only read. A topic has plain queues or batch queues: RocketMQ does not load a store that
# has both for one topic.


class BatchQueues:
    """All batch queues of a store, opened when they are asked for. Any thread may use it."""

    def __init__(
        self,
        layout: StoreLayout,
        view: Callable[[], ReadView],
        matches: Callable[[str, int, BatchUnit], bool] | None = None,
    ) -> None:
        """`matches(topic, queue_id, unit)`: whether a unit is that of its record (`BatchQueue`)."""
        self._layout = layout
        self._view = view
        self._matches = matches
        self._lock = SignalSafeLock("the table of batch queues")
        self._queues: dict[tuple[str, int], BatchQueue] = {}

    def topics(self) -> list[str]:
        return batch_topics(self._layout)

    def queues(self, topic: str) -> list[int]:
        if not is_safe_name(topic):
            return []
        names = directory_names(self._layout.batch_consume_queue / topic)
        return sorted(int(name) for name in names if is_queue_id(name))

    def queue(self, topic: str, queue_id: int) -> BatchQueue | None:
        with self._lock():
            known = self._queues.get((topic, queue_id))
            if known is None and is_safe_name(topic):
                directory = batch_directory(self._layout, topic, queue_id)
                if directory.is_dir():
                    new = BatchQueue(directory, self._view, self._matches_in(topic, queue_id))
                    known = self._queues.setdefault((topic, queue_id), new)
            return known

    def _matches_in(self, topic: str, queue_id: int) -> Callable[[BatchUnit], bool] | None:
        matches = self._matches
        return None if matches is None else lambda unit: matches(topic, queue_id, unit)

    def close(self) -> None:
        """Closes all files and forgets their queues."""
        with self._lock():
            for queue in self._queues.values():
                queue.close()
            self._queues.clear()


def batches_end(layout: StoreLayout) -> int:
    """End of the last record that any batch queue has; -1 when there is no unit at all."""
    everything = ReadView(0, 0, (1 << 64) - 1, 0)
    batches = BatchQueues(layout, lambda: everything)
    end = -1
    for topic in batches.topics():
        for queue_id in batches.queues(topic):
            queue = batches.queue(topic, queue_id)
            end = end if queue is None else max(end, queue.physical_end)
        batches.close()
    return end


def batch_topics(layout: StoreLayout) -> list[str]:
    """Topics whose queues are batch queues."""
    return directory_names(layout.batch_consume_queue)


def batch_directory(layout: StoreLayout, topic: str, queue_id: int) -> Path:
    """The directory of a batch queue's files."""
    return layout.batch_consume_queue / topic / str(queue_id)
