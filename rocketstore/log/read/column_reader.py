"""Reads the files of a log as columns, in physical order, over gaps and damage.

A walk maps files itself, one at a time, or reads memory that holds pieces of files from elsewhere.
It locks nothing, and reads nothing at or after the limit that its caller gives.
"""

from __future__ import annotations

import abc
import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rocketstore._native.format.constants import BLANK_BYTES
from rocketstore._native.format.scanner import SearchBudget, read_message, resynchronise
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError, OffsetOutOfRangeError, ReadFailedError
from rocketstore.log.damage import Damage
from rocketstore.log.layout.listing import has_place, usual_size
from rocketstore.log.layout.log_dirs import list_log
from rocketstore.log.read.fetch_result import OFFSET_TOO_SMALL
from rocketstore.values.public import public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketstore._native.format.column_scanner import ColumnScanner
    from rocketstore.log.layout.paths import StoreLayout

__all__ = [
    "MISSING_SEGMENT",
    "TRIMMED",
    "Chunk",
    "ColumnWalk",
    "LogFiles",
    "ScanReport",
    "SegmentFiles",
]

#: Log that a native call walks without a row, bytes; between two calls Python runs signal
#: handlers.
STRIDE_BYTES = 64 << 20
#: Reasons for a range without a file: lost, or below the begin of a log that was trimmed since.
MISSING_SEGMENT = "missing segment"
TRIMMED = "trimmed"
ABSENT = (MISSING_SEGMENT, TRIMMED)
#: Most damaged ranges that a report names, a count; it counts all of them.
NAMED_DAMAGE = 10_000


@public
@dataclass(slots=True)
class ScanReport:
    """What a scan has seen so far. The walk counts into it.

    `records` were looked at, `rows` were taken; `lost_bytes` hold no record that can be believed,
    in `damage_count` ranges, of which `damage` names the first 10,000. `record_crc_mismatches`:
    record checksums that do not hold where another program wrote, which is no damage.
    """

    records: int = 0
    rows: int = 0
    row_bytes: int = 0
    lost_bytes: int = 0
    damage_count: int = 0
    record_crc_mismatches: int = 0
    damage: list[Damage] = field(default_factory=list)

    def lose(self, start: int, end: int, reason: str) -> None:
        """Counts a damaged range; one that goes on where the last one ended is the same, unless
        there is no file for one of the two. Raises nothing."""
        self.lost_bytes += end - start
        if self.damage and self.damage[-1].end == start:
            before = self.damage[-1]
            if before.reason == reason or not {before.reason, reason}.intersection(ABSENT):
                self.damage.pop()
                start, reason = before.start, before.reason
                self.damage_count -= 1
        self.damage_count += 1
        if len(self.damage) < NAMED_DAMAGE:
            self.damage.append(Damage(start, end, reason))

    def add(self, following: ScanReport) -> None:
        """Adds the counts of a report of a later part. Raises nothing."""
        self.records += following.records
        self.rows += following.rows
        self.row_bytes += following.row_bytes
        self.record_crc_mismatches += following.record_crc_mismatches
        unnamed = following.damage_count - len(following.damage)
        lost_bytes = self.lost_bytes + following.lost_bytes
        for damage in following.damage:
            self.lose(damage.start, damage.end, damage.reason)
        self.damage_count += unnamed
        self.lost_bytes = lost_bytes


class Chunk(NamedTuple):
    """Columns as the native scanner gives them, and the part of the log they come from."""

    arrays: dict[str, Any]
    rows: int
    begin: int
    end: int


class SegmentFiles(abc.ABC):
    """A log as a walk needs it: segments, or pieces of them that begin and end where a record
    does."""

    #: Of a segment, in bytes; 0 when there is none.
    size: int

    @abc.abstractmethod
    def at(self, offset: int) -> MappedFile | None:
        """The file that holds a physical offset; None when it is not there (any more)."""

    @abc.abstractmethod
    def next_start(self, offset: int) -> int | None:
        """Start of the first segment after a physical offset."""

    @abc.abstractmethod
    def may_end_in_zeros(self, file: MappedFile) -> bool:
        """Whether zeros up to the end of a file may be a blank that never reached the disk
        (format.md 15.4)."""

    @abc.abstractmethod
    def cut(self, offset: int, end: int) -> int:
        """A good begin of a part at or after `offset`: where a record begins, or `end`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of the open file; what was read of it stays mapped while it is used."""

    def gap(self, offset: int) -> tuple[int | None, str]:
        """Of a physical offset that no file holds: where the log goes on, if it does, and what is
        missing."""
        return self.next_start(offset), MISSING_SEGMENT

    def segment_end(self, offset: int) -> int:
        """End of the segment with a physical offset, whole or not."""
        return (offset // self.size + 1) * self.size

    def record_start(self, offset: int, end: int, budget: SearchBudget) -> int:
        """The first offset at or after `offset` where a record or blank can be believed, a file
        begins or is missing, or `end`."""
        while offset < end:
            file = self.at(offset)
            if file is None or offset == file.start_offset:
                return offset
            to = min(file.end_offset, end) - file.start_offset
            found = resynchronise(file, offset - file.start_offset, to, budget=budget)
            if found is not None:
                return file.start_offset + found
            offset = min(file.end_offset, end)
        return end


class LogFiles(SegmentFiles):
    """The files of a log as they are listed now, each mapped when it is asked for. One is open at a
    time."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        found = list_log(layout)
        self.size = usual_size(found) or 0
        #: Path of each file, and its bytes: one that was cut is read as far as it goes.
        self._files = {
            start: (path, min(length, self.size))
            for start, length, path in found
            if length and has_place(start, self.size)
        }
        self._open: MappedFile | None = None
        self._budget = SearchBudget()

    def at(self, offset: int) -> MappedFile | None:
        start = self._start_of(offset)
        if start not in self._files or offset >= self._readable_end(start):
            return None
        if self._open is not None and self._open.start_offset == start:
            return self._open
        path, length = self._files[start]
        try:
            file = MappedFile.open(path, start, length, "read")
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None  # removed since it was listed
            raise
        except ValueError as error:
            raise ReadFailedError(f"{error}: it was cut since it was listed") from error
        file.close_descriptor()
        self.close()
        self._open = file
        return file

    def gap(self, offset: int) -> tuple[int | None, str]:
        start = self._start_of(offset)
        if start in self._files and offset >= self._readable_end(start):
            return self.segment_end(offset), "short segment"
        oldest = min(self._files, default=None)
        if oldest is None or not os.path.exists(self._files[oldest][0]):
            # A writer has trimmed the log since it was listed.
            oldest = min(LogFiles(self._layout)._files, default=None)
        if oldest is not None and offset < oldest:
            return oldest, TRIMMED
        return super().gap(offset)

    def next_start(self, offset: int) -> int | None:
        return min((start for start in self._files if start > offset), default=None)

    def _start_of(self, offset: int) -> int:
        return offset - offset % self.size if self.size else 0

    def _readable_end(self, start: int) -> int:
        """In the last bytes of a file that was cut nothing can begin that could be read."""
        length = self._files[start][1]
        return start + (length if length == self.size else max(0, length - BLANK_BYTES + 1))

    def first_store_time(self, start: int, verify: int) -> int | None:
        """Store time of the record that the file of this start begins with; None without one.
        `verify`: VERIFY_* bits."""
        try:
            file = self.at(start)
            if file is None:
                return None
            return read_message(file, 0, file.size, verify=verify).store_timestamp_ms
        except (CorruptRecordError, ReadFailedError):
            return None

    def starts(self) -> list[int]:
        """Of all files, also of those that were cut."""
        return sorted(self._files)

    def may_end_in_zeros(self, file: MappedFile) -> bool:
        return file.size == self.size and self.next_start(file.start_offset) is not None

    def cut(self, offset: int, end: int) -> int:
        found = self.record_start(offset, end, self._budget)
        if found < end and self.at(found) is None:
            following = self.next_start(found)
            return end if following is None else min(following, end)
        return found

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


@dataclass(slots=True)
class ColumnWalk:
    """One walk over records that begin in [begin, end), where `begin` is the start of a record, a
    blank or a file. Reads nothing at or after `limit`. `whole`: a record begins at `end`, or the
    log ends there."""

    files: SegmentFiles
    scanner: ColumnScanner
    begin: int
    end: int
    limit: int
    whole: bool
    chunk_bytes: int
    on_damage: Literal["raise", "skip"]
    report: ScanReport
    #: How far the walk is; finally the end of the last record that begins before `end`.
    reached: int = 0
    #: Limit of the search for a record after damage; None: up to `end`.
    search_end: int | None = None
    #: Budget of all searches of the walk; parts of one scan share it.
    budget: SearchBudget = field(default_factory=SearchBudget)

    def chunks(self) -> Iterator[Chunk]:
        """The chunks. At the first damage raises `CorruptRecordError`, at a trimmed range
        `OffsetOutOfRangeError`, after the rows before it; with "skip" counts both and continues."""
        offset = self.reached = self.begin
        while offset < self.end:
            file = self.files.at(offset)
            if file is None:
                following, reason = self.files.gap(offset)
                if following is not None and reason == TRIMMED and self.on_damage == "raise":
                    raise OffsetOutOfRangeError(offset, following, self.limit, OFFSET_TOO_SMALL)
                stop = self.end if following is None else min(following, self.end)
                self._lose(offset, stop, reason)
                offset = self.reached = stop
                continue
            if file.end_offset - offset < BLANK_BYTES:
                # Too short for a blank: no record begins here.
                offset = self.reached = file.end_offset
                continue
            chunk, status = self._read(file, offset)
            if chunk.rows:
                yield chunk
            offset = self.reached = self._next(file, chunk.end, status)

    def _read(self, file: MappedFile, offset: int) -> tuple[Chunk, str]:
        scanner, report = self.scanner, self.report
        position = offset - file.start_offset
        limit = min(file.size, self.limit - file.start_offset)
        to = min(limit, self.end - file.start_offset, position + STRIDE_BYTES)
        arrays = scanner.read(file, position, to, limit, self.chunk_bytes)
        report.records += scanner.records
        report.rows += scanner.rows
        report.row_bytes += scanner.row_bytes
        report.record_crc_mismatches += scanner.record_crc_mismatches
        end = file.start_offset + scanner.end_position
        return Chunk(arrays, scanner.rows, offset, end), scanner.status

    def _next(self, file: MappedFile, offset: int, status: str) -> int:
        """Where the log continues after a read that ended at `offset`."""
        if status == "full":
            return offset
        if status == "end":
            if offset > self.end and self.whole:
                # The caller that chose `end` took a part of this record for a record.
                raise CorruptRecordError(self.end, "length")
            return offset
        if status == "blank":
            return self.files.segment_end(offset)
        position = offset - file.start_offset
        if (
            status == "zeros"
            and file.find_data(position, file.size) == file.size
            and self.files.may_end_in_zeros(file)
        ):
            return file.end_offset  # A blank that never reached the disk (format.md 15.4).
        if self.on_damage == "raise":
            raise CorruptRecordError(offset, status)  # nothing is looked for in vain
        stop = min(file.end_offset, self.end if self.search_end is None else self.search_end)
        found = resynchronise(file, position + 1, stop - file.start_offset, budget=self.budget)
        goes_on = stop if found is None else file.start_offset + found
        self._lose(offset, goes_on, status)
        return goes_on

    def _lose(self, start: int, end: int, reason: str) -> None:
        if self.on_damage == "raise":
            raise CorruptRecordError(start, reason)
        self.report.lose(start, end, reason)
