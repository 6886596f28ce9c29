"""How a scan is read: out of its files, one after the other, or in parts that several threads read
ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from rocketstore._native.format.column_scanner import ColumnScanner
from rocketstore._native.format.scanner import (
    VERIFY_BODY_CRC,
    VERIFY_RECORD_CRC,
    SearchBudget,
)
from rocketstore.columns import Columns, columns_of
from rocketstore.errors import CorruptRecordError, OffsetOutOfRangeError, RocketStoreError
from rocketstore.filters.program import program_of
from rocketstore.filters.sql import sql_filter
from rocketstore.log.read.column_reader import ColumnWalk, ScanReport, SegmentFiles
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.record_filter import RecordFilter
from rocketstore.values.threads import Pool

__all__ = ["CHECKS", "PART_BYTES", "ScanPlan", "ScanReading", "is_large"]

#: Rows of a chunk at most.
CHUNK_ROWS: Final = 8192
#: Of the log, that a thread reads in one go.
PART_BYTES: Final = 16 << 20
CHECKS: Final = {
    True: VERIFY_BODY_CRC | VERIFY_RECORD_CRC,
    False: 0,
    "body": VERIFY_BODY_CRC,
    "record": VERIFY_RECORD_CRC,
}


def is_large(size: int, chunk_bytes: int) -> bool:
    """Whether a range of `size` bytes has parts for several threads."""
    return size >= 2 * PART_BYTES >= 4 * chunk_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """What one iteration over a scan reads, and how."""

    #: Physical offsets [low, high), in order.
    ranges: tuple[tuple[int, int], ...]
    begin_offset: int
    end_offset: int
    #: End of the log when the scan was made.
    limit_offset: int
    #: Whether `begin_offset` is known to be the start of a record.
    aligned: bool
    #: Whether `end_offset` is known to be the end of a record.
    whole: bool
    columns: tuple[str, ...]
    filter: RecordFilter
    #: VERIFY_* bits: what is tested in each record.
    verify: int
    chunk_bytes: int
    on_damage: Literal["raise", "skip"]
    #: Count of threads that read ahead; 1: the caller reads everything.
    threads: int
    #: Opens the files of the log once more, for a thread of its own.
    open_files: Callable[[], SegmentFiles]


@dataclass(slots=True)
class _PartRead:
    """What was read of a part: its chunks, where the walk came to, and what ended it early."""

    chunks: list[Columns] = field(default_factory=list)
    report: ScanReport = field(default_factory=ScanReport)
    reached: int = 0
    error: Exception | None = None


class _Part(NamedTuple):
    end: int
    read: Future[_PartRead]


class ScanReading:
    """One iteration over a scan."""

    def __init__(self, plan: ScanPlan) -> None:
        self._plan = plan
        self._budget = SearchBudget()

    def chunks(self, files: SegmentFiles, report: ScanReport) -> Iterator[Columns]:
        """In the order of the log, out of `files`, which stay open; counts into `report`."""
        plan, scanner = self._plan, self._scanner()
        for low, high in plan.ranges:
            begin = low
            if not plan.aligned and low == plan.begin_offset:
                begin = files.record_start(low, high, SearchBudget())
            if plan.threads > 1:
                yield from self._with_threads(files, scanner, begin, high, report)
            else:
                yield from self._columns(self._walk(files, scanner, begin, high, report))

    def _with_threads(
        self,
        files: SegmentFiles,
        scanner: ColumnScanner,
        begin: int,
        end: int,
        report: ScanReport,
    ) -> Iterator[Columns]:
        """The first part is read here, chunk by chunk: for whom that is enough, nothing is read in
        vain."""
        first = _bound(files, begin, end)
        walk = self._walk(files, scanner, begin, first, report, search_end=end)
        yield from self._columns(walk)
        yield from self._ahead(files, scanner, walk.reached, end, report)

    def _ahead(
        self, files: SegmentFiles, scanner: ColumnScanner, begin: int, end: int, report: ScanReport
    ) -> Iterator[Columns]:
        """A part begins where a record can be believed. Where the part in front does not end there
        it was wrong to, and what was read after it is read again. From damage on a part is read
        here: so each search is the one that a single thread makes, and has of the budget what is
        left then."""
        threads = self._plan.threads
        parts: deque[_Part] = deque()
        with Pool(threads, "rocketstore-scan") as pool:
            try:
                while parts or begin < end:
                    while len(parts) <= threads and begin < end:
                        bound = _bound(files, begin, end)
                        parts.append(_Part(bound, pool.submit(self._part, begin, bound)))
                        begin = bound
                    part = parts.popleft()
                    found = part.read.result()
                    while found.chunks:
                        yield found.chunks.pop(0)  # not kept while it is used
                    report.add(found.report)
                    reached = found.reached
                    if found.error is not None:
                        if not self._skips(found.error, part.end):
                            raise without_frames(found.error)
                        walk = self._walk(files, scanner, reached, part.end, report, search_end=end)
                        yield from self._columns(walk)
                        reached = walk.reached
                    if reached > part.end:
                        _cancel(parts)
                        begin = reached
            finally:
                _cancel(parts)

    def _part(self, begin: int, end: int) -> _PartRead:
        """From any thread."""
        found = _PartRead()
        with closing(self._plan.open_files()) as files:
            walk = self._walk(files, self._scanner(), begin, end, found.report, on_damage="raise")
            try:
                for chunk in self._columns(walk):
                    found.chunks.append(chunk)
            except (RocketStoreError, OSError) as error:
                found.error = without_frames(error)
            found.reached = walk.reached
            if isinstance(found.error, CorruptRecordError):
                found.reached = found.error.physical_offset
        return found

    def _skips(self, error: Exception, end: int) -> bool:
        """Whether a part that ends at `end` is read on after an error. One at `end` is of the end
        itself."""
        if isinstance(error, OffsetOutOfRangeError):  # trimmed since
            return self._plan.on_damage == "skip"
        damaged = isinstance(error, CorruptRecordError) and error.physical_offset < end
        return damaged and self._plan.on_damage == "skip"

    def _walk(
        self,
        files: SegmentFiles,
        scanner: ColumnScanner,
        begin: int,
        end: int,
        report: ScanReport,
        *,
        search_end: int | None = None,
        on_damage: Literal["raise", "skip"] | None = None,
    ) -> ColumnWalk:
        plan = self._plan
        return ColumnWalk(
            files,
            scanner,
            begin,
            end,
            plan.limit_offset,
            plan.whole and (plan.threads == 1 or end == plan.end_offset),
            plan.chunk_bytes,
            on_damage or plan.on_damage,
            report,
            search_end=search_end,
            budget=self._budget,
        )

    def _columns(self, walk: ColumnWalk) -> Iterator[Columns]:
        for chunk in walk.chunks():
            arrays = columns_of(chunk.arrays, self._plan.columns)
            yield Columns(arrays, chunk.rows, chunk.begin, chunk.end)

    def _scanner(self) -> ColumnScanner:
        plan, wanted = self._plan, self._plan.filter
        return ColumnScanner(
            plan.columns,
            room=CHUNK_ROWS,
            verify=plan.verify,
            accept=wanted.acceptance(),
            tags=None if wanted.tags is None else [tag.encode() for tag in wanted.tags],
            where=None if wanted.where is None else program_of(sql_filter(wanted.where)),
            from_ms=wanted.start_ms,
            to_ms=wanted.end_ms,
        )


def _bound(files: SegmentFiles, begin: int, end: int) -> int:
    target = begin + PART_BYTES
    return end if end - target <= PART_BYTES // 2 else files.cut(target, end)


def _cancel(parts: deque[_Part]) -> None:
    for part in parts:
        part.read.cancel()
    parts.clear()
