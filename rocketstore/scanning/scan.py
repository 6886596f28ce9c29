"""Scan: a part of a log and what is wanted of it, read as columns without a lock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from rocketstore._native.format.scanner import VERIFY_LENIENT, VERIFY_RECORD_CRC
from rocketstore.archive.segments import ArchivePart, ObjectFiles
from rocketstore.columns import Columns
from rocketstore.errors import OffsetOutOfRangeError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.store_json import is_foreign, load_store_state
from rocketstore.log.read.column_reader import LogFiles, ScanReport, SegmentFiles
from rocketstore.scanning.bookmark import Bookmark, bookmark_of
from rocketstore.scanning.parallel import CHECKS, ScanPlan, ScanReading, is_large
from rocketstore.values.arguments import one_of, whole_number
from rocketstore.values.public import public
from rocketstore.values.record_filter import RecordFilter
from rocketstore.values.threads import POOL_THREADS_MAX

if TYPE_CHECKING:
    from types import ModuleType

    import duckdb
    import pandas
    import polars
    import pyarrow
    import pyarrow.dataset

__all__ = ["CHUNK_BYTES", "OnDamage", "Scan", "ScanReport", "Verify", "checked_offset"]

Verify = bool | Literal["body", "record"]
OnDamage = Literal["raise", "skip"]

CHUNK_BYTES: Final = 2 << 20
CHUNK_BYTES_MAX: Final = 1 << 30
SPLIT_BYTES: Final = 256 << 20
#: How far the clock of another program may have been put back between two of its messages.
DAY_MS: Final = 86_400_000


@public
@dataclass(frozen=True, kw_only=True)
class Scan:
    """A part of a log and what is wanted of it: made by `rocketstore.scan`, read by iterating.

    Each iteration starts over, maps the files that it needs and takes no lock, so a scan can be
    pickled and read in another process, or on another machine that sees the files. Which part of
    the log it covers was settled when it was made: [begin_offset, end_offset), never beyond what
    was visible then.
    """

    path: str
    begin_offset: int
    end_offset: int
    columns: tuple[str, ...]
    filter: RecordFilter = field(default_factory=RecordFilter)
    verify: Verify = True
    chunk_bytes: int = CHUNK_BYTES
    on_damage: OnDamage = "raise"
    #: Where the log ended when the scan was made.
    limit_offset: int
    #: Whether begin_offset is known to be the start of a record, and end_offset too.
    aligned: bool = True
    whole: bool = False
    log_directories: tuple[str, ...] = ()
    #: Count of threads that read a store ahead, after its first 16 MiB; 1: none does.
    threads: int = 1
    #: Of an archive, where `path` is the URI of one (`rocketstore.ship`).
    archive: ArchivePart | None = field(default=None, repr=False)
    #: Of the latest iteration in this process.
    report: ScanReport = field(default_factory=ScanReport, compare=False, repr=False)

    def __post_init__(self) -> None:
        whole_number("chunk_bytes", self.chunk_bytes, 1, CHUNK_BYTES_MAX)
        one_of("on_damage", self.on_damage, ("raise", "skip"))
        whole_number("threads", self.threads, 1, POOL_THREADS_MAX)
        one_of("verify", self.verify, tuple(CHECKS))
        checked_offset("begin_offset", self.begin_offset, 0, self.limit_offset)
        checked_offset("end_offset", self.end_offset, self.begin_offset, self.limit_offset)

    @property
    def bookmark(self) -> Bookmark:
        """Where this scan ends, for `rocketstore.scan(path, after=bookmark)`. Reads a record."""
        return bookmark_of(self)

    def __iter__(self) -> Iterator[Columns]:
        """Chunks of at most `chunk_bytes` of records and 8192 rows; none without a row.

        Raises:
            CorruptRecordError: no record can be believed there, and `on_damage` is "raise"; what
                lies before it was handed out.
            OffsetOutOfRangeError: the same where the log was trimmed since the scan was made;
                "skip" counts it as lost, with the reason "trimmed".
            ReadFailedError: the disk, or the place of an archive, does not give the bytes back.
            FileNotFoundError: an object that the manifest names is not there.
            ValueError: `topic_pattern` costs too much for the name of a topic (docs/api.md).
        """
        files = self._files()
        try:
            yield from self._read(files)
        finally:
            files.close()

    def _read(self, files: SegmentFiles) -> Iterator[Columns]:
        """The chunks, out of `files`, which stay open."""
        report = ScanReport()
        object.__setattr__(self, "report", report)
        return ScanReading(self._plan()).chunks(files, report)

    def _plan(self) -> ScanPlan:
        many = self.archive is None and is_large(
            self.end_offset - self.begin_offset, self.chunk_bytes
        )
        return ScanPlan(
            ranges=tuple(self._ranges()),
            begin_offset=self.begin_offset,
            end_offset=self.end_offset,
            limit_offset=self.limit_offset,
            aligned=self.aligned,
            whole=self.whole,
            columns=self.columns,
            filter=self.filter,
            verify=self._verify_bits(),
            chunk_bytes=self.chunk_bytes,
            on_damage=self.on_damage,
            threads=self.threads if many else 1,
            open_files=self._files,
        )

    def _verify_bits(self) -> int:
        """What is tested in each record: VERIFY_* bits."""
        verify = CHECKS[self.verify]
        if verify & VERIFY_RECORD_CRC:
            archive = self.archive
            if archive.foreign if archive is not None else is_foreign(self._layout()):
                verify |= VERIFY_LENIENT
        return verify

    def split(self, split_bytes: int = SPLIT_BYTES) -> list[Scan]:
        """Cuts the scan into parts of about `split_bytes` of the log, in order; none when there is
        nothing.

        Each record belongs to exactly one part. A part begins where a segment does, or at a record
        that can be believed. A part that finds no record at its end raises CorruptRecordError when
        it is read.

        Raises:
            ValueError, TypeError: `split_bytes` is no number from 1 on.
            ReadFailedError, OSError: The files, or the objects of an archive, cannot be read.
        """
        split_bytes = whole_number("split_bytes", split_bytes, 1)
        files = self._files()
        parts = []
        try:
            for low, high in self._ranges():
                bounds = [low]
                while bounds[-1] < high:
                    bounds.append(self._next_bound(files, bounds[-1], high, split_bytes))
                parts += list(itertools.pairwise(bounds))
        finally:
            files.close()
        return [
            replace(
                self,
                begin_offset=begin,
                end_offset=end,
                aligned=self.aligned or begin > self.begin_offset,
                whole=self.whole or end < self.end_offset,
                threads=1,
                report=ScanReport(),
                archive=self.archive and self.archive.within(begin, end),
            )
            for begin, end in parts
        ]

    # ---- Arrow, with rocketstore[arrow] ----

    def to_arrow(self) -> pyarrow.RecordBatchReader:
        """Gives a stream of record batches (`rocketstore.arrow`).

        Raises:
            ModuleNotFoundError: There is no pyarrow (`rocketstore[arrow]`).
        """
        reader: pyarrow.RecordBatchReader = _arrow().batch_reader(self)
        return reader

    def to_dataset(self) -> pyarrow.dataset.Dataset:
        """Gives a dataset that can be read again and again, each time the columns that are asked
        for: `duckdb.sql("select … from dataset")`, `polars.scan_pyarrow_dataset(dataset)`.

        Raises:
            ModuleNotFoundError: There is no pyarrow (`rocketstore[arrow]`).
        """
        dataset: pyarrow.dataset.Dataset = _arrow().ScanDataset(self)
        return dataset

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's protocol: what takes streams (`pyarrow.table`, `polars.DataFrame`) takes a
        scan."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_polars(self) -> polars.DataFrame:
        """Reads all rows into memory, as a polars DataFrame.

        Raises:
            ModuleNotFoundError: There is no pyarrow, or no polars.
            CorruptRecordError, OffsetOutOfRangeError, ReadFailedError, FileNotFoundError: As
                iterating.
        """
        frame: polars.DataFrame = _arrow().to_polars(self)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Reads all rows into memory, as a pandas DataFrame.

        Raises:
            ModuleNotFoundError: There is no pyarrow, or no pandas.
            CorruptRecordError, OffsetOutOfRangeError, ReadFailedError, FileNotFoundError: As
                iterating.
        """
        frame: pandas.DataFrame = _arrow().to_pandas(self)
        return frame

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Makes a DuckDB relation that streams the scan, once for each query, and of it the columns
        that the query names.

        Raises:
            ModuleNotFoundError: There is no pyarrow, or no duckdb.
        """
        relation: duckdb.DuckDBPyRelation = _arrow().to_duckdb(self, connection)
        return relation

    def _next_bound(self, files: SegmentFiles, begin: int, end: int, split_bytes: int) -> int:
        """A good place about `split_bytes` after `begin`: the end of a segment if that is near.
        A short rest after it belongs to the part."""
        if files.size:
            segment_end = (begin // files.size + 1) * files.size
            if segment_end - begin <= split_bytes + split_bytes // 2:
                return segment_end if end - segment_end > split_bytes // 8 else end
        target = begin + split_bytes
        if end - target <= split_bytes // 2:
            return end
        return files.cut(target, end)

    def _ranges(self) -> Iterable[tuple[int, int]]:
        """What is walked: in an archive, all but the segments that hold nothing wanted."""
        if self.archive is None:
            return [(self.begin_offset, self.end_offset)]
        return list(self.archive.ranges(self.begin_offset, self.end_offset))

    def _files(self) -> SegmentFiles:
        if self.archive is None:
            return LogFiles(self._layout())
        skip = self.on_damage == "skip"
        return ObjectFiles(self.archive, check=self.verify is not False, skip_damage=skip)

    def _narrowed(self) -> Scan:
        """Without segments at either end that cannot hold a message of the times that are
        wanted."""
        wanted = self.filter
        if self.archive is not None or not wanted.timed:
            return self  # an archive's manifest has the times of its segments
        layout = self._layout()
        state = load_store_state(layout)
        if state is not None and state.falls_within(self.begin_offset, self.end_offset):
            return self
        slack_ms = DAY_MS if state is None or state.foreign else 0
        times = self._first_times(layout)
        if any(
            later + slack_ms < time_ms for (_, time_ms), (_, later) in itertools.pairwise(times)
        ):
            return self  # a clock was set back: no order to rely on
        changes: dict[str, Any] = {}
        for start, time_ms in times:
            if start <= self.begin_offset:
                continue
            if time_ms + slack_ms < wanted.start_ms:
                changes |= {"begin_offset": start, "aligned": True}
            elif time_ms - slack_ms >= wanted.end_ms:
                changes |= {"end_offset": start, "whole": True}
                break
        return replace(self, **changes) if changes else self

    def _first_times(self, layout: StoreLayout) -> list[tuple[int, int]]:
        """Start of each segment in reach and the store time of its first record, where there is one
        that can be believed: a time that is damaged would hide segments, and the damage with
        them."""
        files, checks = LogFiles(layout), self._verify_bits()
        try:
            starts = files.starts()
            first = max((start for start in starts if start <= self.begin_offset), default=0)
            wanted = (start for start in starts if first <= start < self.end_offset)
            found = ((start, files.first_store_time(start, checks)) for start in wanted)
            return [(start, time_ms) for start, time_ms in found if time_ms is not None]
        finally:
            files.close()

    def _layout(self) -> StoreLayout:
        return StoreLayout(Path(self.path), tuple(map(Path, self.log_directories)))


def checked_offset(name: str, offset: int, low: int, high: int) -> int:
    """A physical offset that a caller gives. OffsetOutOfRangeError, TypeError, ValueError."""
    found = whole_number(name, offset)
    if not low <= found <= high:
        status = "OFFSET_TOO_SMALL" if found < low else "OFFSET_OVERFLOW_BADLY"
        raise OffsetOutOfRangeError(found, low, high, status)
    return found


def _arrow() -> ModuleType:
    try:
        import rocketstore.arrow
    except ImportError as error:
        raise ModuleNotFoundError(
            "scans as Arrow need pyarrow: pip install 'rocketstore[arrow]'", name="pyarrow"
        ) from error
    return rocketstore.arrow
