"""One consume queue: for each message of a (topic, queue id), where its record is.

Unit n is at byte 20 n of an endless file (`queue_files`). So the queue offset in a record decides
where its unit goes, and dispatching a record twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketstore._native.format import queue_file
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.queue_positions import QueueEnd
from rocketstore.log.layout.listing import file_at
from rocketstore.log.queues.extension_units import ExtensionUnits
from rocketstore.log.queues.queue_files import QueueFiles
from rocketstore.log.queues.units import (
    QUEUE_OFFSET_MAX,
    UNIT_SIZE,
    UnitRefusedError,
    check_gap,
    name_records_in_order,
    unwritten_runs,
)

__all__ = ["ConsumeQueue"]


class ConsumeQueue:
    """The units of one queue. Only the dispatcher writes them; readers see those it has published,
    below `max_offset`."""

    def __init__(
        self, topic: str, queue_id: int, files: QueueFiles, log_minimum: Callable[[], int]
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = files.directory
        self.file_size = files.file_size
        self._files = files
        self._log_minimum = log_minimum
        self.extension = ExtensionUnits.of_queue(files.directory)
        self.loaded = False
        #: Least end at the last close, a queue offset; 0: not known (format 20.9).
        self.known_end = 0
        #: End of what readers see, a queue offset.
        self.end = QueueEnd()
        self._min_offset = 0
        self._min_for = -1

    # ---- load ----

    def load(self) -> None:
        """Maps the files and finds the end: the first unit that is not written ends the queue."""
        if not self.loaded:
            self._snapshot()

    def _snapshot(self) -> tuple[MappedFile, ...]:
        """The files, mapped as long as the caller holds them."""
        with self._files.lock():
            files = self._files.snapshot()
            if not self.loaded:
                self._find_end()
                self.loaded = True
            return files

    def _find_end(self) -> None:
        """ReadFailedError where the disk does not return the units: then no end can be believed,
        and the next caller looks again."""
        last = self._files.last
        self.end.value = (
            0 if last is None else last.start_offset // UNIT_SIZE + queue_file.written_units(last)
        )

    @property
    def odd(self) -> bool:
        """Whether a file has, or had, a wrong length or place, or is missing between two. False of
        a queue that nobody has loaded."""
        return self._files.odd

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    @property
    def units_per_file(self) -> int:
        return self.file_size // UNIT_SIZE

    # ---- reading ----

    @property
    def written_end(self) -> int:
        """Queue offset after the last unit."""
        self.load()
        return self.end.value

    @property
    def max_offset(self) -> int:
        """The same, or the least end known from the last close; units between the two are
        missing."""
        return max(self.written_end, self.known_end)

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message whose record is still in the log; pre-blanks do not
        count."""
        self.load()
        minimum = self._log_minimum()
        if minimum != self._min_for:
            self._min_offset = self._find_minimum(minimum)
            self._min_for = minimum if self._min_offset < self.end.value else -1
        return min(self._min_offset, self.end.value)

    def _find_minimum(self, minimum: int) -> int:
        for file in self._snapshot():
            first = file.start_offset // UNIT_SIZE
            count = min(self.units_per_file, self.end.value - first)
            if count <= 0:
                break
            found = queue_file.first_kept(file, 0, count, minimum)
            if found < count:
                return first + found
        return self.end.value

    def locate(self, queue_offset: int, /) -> tuple[MappedFile, int, int] | None:
        """File, byte position of the unit in it, units readable from there in this file; None if
        there is no such unit."""
        file = file_at(self._snapshot(), self.file_size, queue_offset * UNIT_SIZE)
        if file is None:
            return None
        position = queue_offset * UNIT_SIZE - file.start_offset
        available = min(file.end_offset // UNIT_SIZE, self.end.value) - queue_offset
        return (file, position, available) if available > 0 else None

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """(physical_offset, size, tags_code) of one unit; None if there is none."""
        place = self.locate(queue_offset)
        return None if place is None else queue_file.read_unit(place[0], place[1] // UNIT_SIZE)

    @property
    def physical_begin(self) -> int | None:
        """Offset of the first record that is still in the log; None for an empty queue."""
        first = self.unit(self.min_offset)
        return None if first is None else first[0]

    @property
    def physical_end(self) -> int:
        """End of the record of the last unit; -1 for an empty queue."""
        for file in reversed(self._snapshot()):
            count = min(self.units_per_file, self.end.value - file.start_offset // UNIT_SIZE)
            end = queue_file.physical_end(file, max(0, count))
            if end >= 0:
                return end
        return -1

    @property
    def is_believed(self) -> bool:
        """Whether the units of the last file can be those of a queue; others say nothing of where
        the log ends."""
        for file in reversed(self._snapshot()):
            count = min(self.units_per_file, self.end.value - file.start_offset // UNIT_SIZE)
            if count > 0:
                return name_records_in_order(file, count)
        return True

    # ---- writing: the dispatcher only ----

    def publish(self, max_offset: int) -> None:
        """Readers see the units below `max_offset`."""
        self.end.raise_to(max_offset)

    def room_for(self, queue_offset: int) -> tuple[MappedFile, int, int]:
        """(file, queue offset of its first unit, units that may be written in it) with
        `queue_offset` inside. Makes the file, and fills what lies before a queue's first unit with
        pre-blanks.

        Raises:
            DiskFullError, OSError: no room; nothing was changed.
            UnitRefusedError: no file can hold it, or the gap before it is too large to be believed.
        """
        if not 0 <= queue_offset <= QUEUE_OFFSET_MAX:
            raise UnitRefusedError(f"{self.name}: no unit {queue_offset}")
        position = queue_offset * UNIT_SIZE
        with self._files.lock():
            self._files.note_change()
            files = self._snapshot()
            is_first = not files or position < files[0].start_offset
            file = self._files.file_for(position)
            begin = file.start_offset
            if is_first:
                if position > begin:
                    self._files.reserve(file, position - begin)
                    queue_file.fill_pre_blank(file, 0, (position - begin) // UNIT_SIZE)
                self.end.value = max(self.end.value, queue_offset)
            limit = self._files.reserve(file, position - begin + UNIT_SIZE)
            self._files.ask_if_full_soon(file, position)
        return file, begin // UNIT_SIZE, limit // UNIT_SIZE

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
        """Stores one unit, whatever was there; a gap before it is filled with pre-blanks (K-56)."""
        with self._files.lock():
            self.fill_gap(queue_offset)
            file, first, _ = self.room_for(queue_offset)
            queue_file.write_unit(file, queue_offset - first, physical_offset, size, tags_code)
            self.publish(queue_offset + 1)

    def fill_gap(self, queue_offset: int) -> int:
        """Pre-blanks from the end of the queue up to `queue_offset`; returns how many."""
        if not self._snapshot() or queue_offset <= self.end.value:
            return 0
        filled = check_gap(self.name, self.end.value, queue_offset)
        while self.end.value < queue_offset:
            file, first, _ = self.room_for(self.end.value)
            count = min(queue_offset, first + self.units_per_file) - self.end.value
            self._files.reserve(file, (self.end.value - first + count) * UNIT_SIZE)
            queue_file.fill_pre_blank(file, self.end.value - first, count)
            self.end.value += count
        return filled

    def fill_holes(self) -> tuple[int, int] | None:
        """Pre-blanks for the units below the end that nobody wrote. What it changed, first and end;
        None for nothing."""
        low, high = self.end.value, 0
        with self._files.lock():
            for file in self._snapshot():
                first = file.start_offset // UNIT_SIZE
                count = min(self.units_per_file, self.end.value - first)
                for begin, number in unwritten_runs(file, max(0, count)):
                    self._files.note_change()
                    self._files.reserve(file, (begin + number) * UNIT_SIZE)
                    queue_file.fill_pre_blank(file, begin, number)
                    low, high = min(low, first + begin), first + begin + number
        return (low, high) if low < high else None

    @property
    def first_file_units(self) -> int:
        """Units of the first file that lie below the end, written or not."""
        files = self._snapshot()
        begin = files[0].start_offset // UNIT_SIZE if files else self.end.value
        return min(self.units_per_file, self.end.value - begin)

    @property
    def has_hole_in_first_file(self) -> bool:
        """Whether one of these was never written."""
        files = self._snapshot()
        return bool(files) and queue_file.written_units(files[0]) < self.first_file_units

    def clear_units(self, numbers: Sequence[int]) -> None:
        """Makes these units, in rising order, unwritten; those at the end go with their files, a file
        in which no other unit is left among them."""
        with self._files.lock():
            end, self._files.odd = self.end.value, True
            for number in reversed(numbers):
                place = self.locate(number)
                if place is not None:
                    self._files.note_change()
                    place[0].write(place[1], bytes(UNIT_SIZE))
                end = number if number == end - 1 else end
            self.end.value = end
            files = self._snapshot()
            while files and files[-1].start_offset >= self.end.value * UNIT_SIZE:
                self._files.remove_from(files[-1].start_offset)
                self._find_end()  # there may be no file before it, or one with fewer units
                files = self._snapshot()
            self._min_for = -1
        self.sync(numbers[0], numbers[-1] + 1)

    def forget_minimum(self) -> None:
        """Units below the first one that was there have been written."""
        self._min_for = -1

    # ---- sync, truncate, trim ----

    def sync(self, first_unit: int, end_unit: int) -> None:
        """Syncs the units [first_unit, end_unit), and the names of their files (D-18). Raises
        OSError."""
        self._files.sync(first_unit * UNIT_SIZE, end_unit * UNIT_SIZE)

    def restart(self) -> None:
        """Drops all units: the numbering begins again at 0."""
        with self._files.lock():
            self._snapshot()
            self._files.note_change()
            self._files.remove_from(0)
            self.end.value = 0
            self._min_for = -1

    def truncate_from(self, physical_offset: int, *, whole: bool = False) -> bool:
        """Clears, on disk, the first unit at or beyond `physical_offset` and all bytes after it.
        Files that hold nothing else are removed, except for the first. Whether it cleared
        something. `whole`: looks for that unit in all files. Else it is found from the end on, if
        the units rise."""
        with self._files.lock():
            files = self._snapshot()
            starts = (each.start_offset for each in files if _reaches(each, physical_offset))
            changed = self._truncate_from(physical_offset, next(starts, -1) if whole else -1)
            if changed:
                self._files.note_change()
            return changed

    def _truncate_from(self, physical_offset: int, reached: int) -> bool:
        """`reached`: start of the file with the first of these units; -1: not known."""
        changed = False
        while (last := self._files.last) is not None:
            before = self.end.value
            if reached < 0 and self._ends_below(last, physical_offset):
                break
            behind = last.start_offset > reached >= 0
            left = 0 if behind else queue_file.cut(last, physical_offset)
            self.end.value = last.start_offset // UNIT_SIZE + left
            if self.end.value < before:
                changed = True
                if self._files.access == "write":
                    last.sync(left * UNIT_SIZE, last.size)
            if left or len(self._files.snapshot()) == 1:
                break
            self._files.remove_from(last.start_offset)
            self._find_end()  # the last units of the file before may never have reached the disk
            changed = True
        self._min_for = -1
        return changed

    def _ends_below(self, file: MappedFile, physical_offset: int) -> bool:
        """Whether the file has no unit at or beyond `physical_offset`, and no bytes after its end.
        Nearly always without a look at its units."""
        written = self.end.value - file.start_offset // UNIT_SIZE
        end = queue_file.physical_end(file, written)
        stale = file.find_data(written * UNIT_SIZE, file.size) < file.size
        return 0 <= end <= physical_offset and not stale

    def trim(self, minimum: int) -> list[str]:
        """Removes whole files whose last record lies below `minimum`; the last file always
        stays."""
        keep = 0
        with self._files.lock():
            for file in self._snapshot()[:-1]:
                end = queue_file.physical_end(file, self.units_per_file)
                if end > minimum:
                    break
                keep = file.end_offset if end >= 0 else keep  # pre-blanks go with what follows
            if not keep:
                return []
            self._files.note_change()
            return self._files.remove_before(keep)

    @property
    def files(self) -> tuple[MappedFile, ...]:
        return self._snapshot()

    def check_names(self) -> None:
        """As `NextFiles.check_names`."""
        self._files.next_files.check_names()

    def close(self) -> None:
        self._files.close()
        self.extension.close()

    def __repr__(self) -> str:
        return f"ConsumeQueue({self.topic!r}, {self.queue_id}, max_offset={self.max_offset})"


def _reaches(file: MappedFile, physical_offset: int) -> bool:
    """Whether any unit points to a record at or beyond `physical_offset`."""
    return (
        queue_file.first_kept(file, 0, file.size // UNIT_SIZE, physical_offset)
        < file.size // UNIT_SIZE
    )
