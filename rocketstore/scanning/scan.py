"""`rocketstore.scan`: the messages of a store in physical order, as columns, without a lock."""

from __future__ import annotations

import difflib
import inspect
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from rocketstore.api import open_store
from rocketstore.archive.object_store import Place, is_uri, shown
from rocketstore.archive.segments import ArchivePart, ObjectFiles
from rocketstore.columns import Columns, column_names
from rocketstore.errors import OffsetOutOfRangeError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.log.read.column_reader import LogFiles, ScanReport, SegmentFiles
from rocketstore.scanning.parallel import CHECKS, ScanReading, checks_of
from rocketstore.store import Store
from rocketstore.values.arguments import one_of, whole_number
from rocketstore.values.record_filter import RecordFilter, Wanted

if TYPE_CHECKING:
    from types import ModuleType

    import duckdb
    import pandas
    import polars
    import pyarrow

__all__ = ["Scan", "ScanReport", "scan"]

Verify = bool | Literal["body", "record"]
OnDamage = Literal["raise", "skip"]

CHUNK_BYTES: Final = 2 << 20
CHUNK_BYTES_MAX: Final = 1 << 30
SPLIT_BYTES: Final = 256 << 20
#: That read ahead unless another number is asked for; what one processor makes of chunks needs no more.
THREADS: Final = 4
THREADS_MAX: Final = 64
#: How far the clock of another program may have been put back between two of its messages.
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A part of a log and what is wanted of it: made by `rocketstore.scan`, read by iterating.

    Each iteration begins anew, maps the files that it needs and takes no lock, so a scan can be pickled and
    read in another process, or on another machine that sees the files. Which part of the log it covers was
    settled when it was made: [begin_offset, end_offset), never beyond what was visible then.
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
    #: That read a store ahead, behind its first 16 MiB; 1: none does.
    threads: int = 1
    #: Of an archive, where `path` is the URI of one (`rocketstore.ship`).
    archive: ArchivePart | None = field(default=None, repr=False)
    #: Of the latest iteration in this process.
    report: ScanReport = field(default_factory=ScanReport, compare=False, repr=False)

    def __post_init__(self) -> None:
        whole_number("chunk_bytes", self.chunk_bytes, 1, CHUNK_BYTES_MAX)
        one_of("on_damage", self.on_damage, ("raise", "skip"))
        whole_number("threads", self.threads, 1, THREADS_MAX)
        one_of("verify", self.verify, tuple(CHECKS))

    def __iter__(self) -> Iterator[Columns]:
        """Chunks of at most `chunk_bytes` of records and 8192 rows; none without a row.

        Raises:
            CorruptRecordError: no record can be believed there, and `on_damage` is "raise"; what
                lies before it was handed out.
            OffsetOutOfRangeError: the same where the log was trimmed since the scan was made; "skip"
                counts it as lost, with the reason "trimmed".
            ReadFailedError: the disk, or the place of an archive, does not give the bytes back.
            FileNotFoundError: an object that the manifest names is not there.
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
        return ScanReading(self).chunks(files, report)

    def split(self, split_bytes: int = SPLIT_BYTES) -> list[Scan]:
        """The same scan in parts of about `split_bytes` of the log, in order; none when there is nothing.

        Each record belongs to exactly one part. Parts begin where a segment does, or where a record can be
        believed; a part that finds out, while it is read, that the next one does not begin at a record raises
        `CorruptRecordError`.
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
        """A stream of record batches (`rocketstore.arrow`)."""
        reader: pyarrow.RecordBatchReader = _arrow().batch_reader(self)
        return reader

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's protocol: what takes streams (`pyarrow.table`, `polars.DataFrame`) takes a scan."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_polars(self) -> polars.DataFrame:
        """All rows in memory."""
        frame: polars.DataFrame = _arrow().to_polars(self)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """All rows in memory."""
        frame: pandas.DataFrame = _arrow().to_pandas(self)
        return frame

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """A relation that streams the scan, anew for each query."""
        relation: duckdb.DuckDBPyRelation = _arrow().to_duckdb(self, connection)
        return relation

    def _next_bound(self, files: SegmentFiles, begin: int, end: int, split_bytes: int) -> int:
        """A good place about `split_bytes` behind `begin`: the end of a segment if that is near. What little is
        left behind that is no part of its own."""
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
        """Without segments at either end that cannot hold a message of the times that are wanted."""
        wanted = self.filter
        if not wanted.timed:
            return self
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
        """Start of each segment in reach and the store time of its first record, where there is one that can be
        believed: a time that is damaged would hide segments, and the damage with them."""
        files, checks = LogFiles(layout), checks_of(self)
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


def scan(
    source: str | os.PathLike[str] | Store,
    *,
    columns: Iterable[str] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    aligned: bool = False,
    verify: Verify = True,
    chunk_bytes: int = CHUNK_BYTES,
    on_damage: OnDamage = "raise",
    commit_log_dir: str = "",
    threads: int | None = None,
    **wanted: Unpack[Wanted],
) -> Scan:
    """The messages of a store, a path or an open one, or of an archive, in physical order, as columns.

    Rows are records as they stand, also those that no consumer is given (docs/arrow.md). No lock is taken and nothing
    is changed; the end is what is visible now. A text like "s3://bucket/prefix" or "file:///directory" is the archive
    that `ship` made there: its manifest is read now, and what is needed of its segments when the scan is read.

    Args:
        columns: Names of `rocketstore.columns.COLUMNS`; None: all, bodies copied ("body_view" leaves
            them in the file).
        start_offset: Physical offset; records that begin there or behind. The end of a record that began
            before is passed over, unless `aligned` says that none did. None: the begin of the log.
        end_offset: Physical offset; records that begin before it. None: the visible end.
        verify: Checksums that are tested in every record, wanted or not: True both, "body", "record" or
            False none.
        chunk_bytes: Of records in a chunk, about: 1 … 2^30.
        on_damage: "raise" `CorruptRecordError`, or "skip" to the next record that can be believed and count
            what is lost in `report`.
        commit_log_dir: All directories of the log, with "," between them, where it has several.
        threads: That read a store ahead, 1 … 64, behind its first 16 MiB, each that much; chunks come in order
            all the same. None: one for each processor, 4 at most; 1 where bodies are copied, which needs
            fresh memory more than a processor. An archive has one, and so have parts that `split` makes.
        wanted: Only records of `topics`, a name or several, or whose topic a `topic_pattern` matches as a
            whole; of `queues`, ids or a mapping of topics to ids; with one of `tags`, several or "a || b",
            and inner batches, whose messages have tags of their own; stored at or after
            `start_timestamp` and before `end_timestamp`, milliseconds or aware datetimes.

    Raises:
        ValueError, TypeError: an argument that means nothing.
        OffsetOutOfRangeError: an offset outside the log. With on_damage="skip" what is below the begin of
            the log counts as lost instead.
        FileNotFoundError, NotADirectoryError, PermissionError: as the system says.
        ConfigError, ReadFailedError: a place that pyarrow does not know, or that does not answer.
    """
    names = column_names(columns)
    taken = _filter_of(wanted)
    path, directories, begin, end, archive = _place_of(source, commit_log_dir, taken)
    first = begin if start_offset is None else whole_number("start_offset", start_offset)
    last = end if end_offset is None else whole_number("end_offset", end_offset)
    _check_range(first, last, begin if on_damage == "raise" else 0, end)
    found = Scan(
        path=path,
        begin_offset=first,
        end_offset=last,
        columns=names,
        filter=taken,
        verify=verify,
        chunk_bytes=chunk_bytes,
        on_damage=on_damage,
        limit_offset=end,
        aligned=aligned or first <= begin,
        whole=last == end,
        log_directories=directories,
        threads=_threads(names) if threads is None else threads,
        archive=archive,
    )
    return found._narrowed() if archive is None else found


def _check_range(first: int, last: int, begin: int, end: int) -> None:
    for asked, least in ((first, begin), (last, first)):
        if not least <= asked <= end:
            status = "OFFSET_TOO_SMALL" if asked < least else "OFFSET_OVERFLOW_BADLY"
            raise OffsetOutOfRangeError(asked, least, end, status)


def _filter_of(wanted: Wanted) -> RecordFilter:
    """Also TypeError for a keyword that `scan` does not have, by the name of the function that was called."""
    known = [*inspect.signature(scan).parameters, *Wanted.__annotations__]
    for name in wanted:
        if name not in Wanted.__annotations__:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise TypeError(f"scan() has no argument {name!r}{hint}")
    return RecordFilter.of(**wanted)


def _threads(columns: tuple[str, ...]) -> int:
    return 1 if "body" in columns else min(THREADS, os.cpu_count() or 1)


def _place_of(
    source: str | os.PathLike[str] | Store, commit_log_dir: str, wanted: RecordFilter
) -> tuple[str, tuple[str, ...], int, int, ArchivePart | None]:
    """Path, log directories, begin and end of what is scanned; and the archive, if it is one."""
    if not is_uri(source):
        return (*_bounds(source, commit_log_dir), None)
    uri = str(source)
    if commit_log_dir:
        raise ValueError(f"commit_log_dir = {commit_log_dir!r}: not with {shown(uri)}")
    manifest = Place(uri).manifest()
    part = ArchivePart.of(uri, manifest, wanted)
    return shown(uri), (), manifest.begin_offset, manifest.end_offset, part


def _bounds(
    source: str | os.PathLike[str] | Store, commit_log_dir: str
) -> tuple[str, tuple[str, ...], int, int]:
    """Path, log directories, begin and visible end of a store."""
    if isinstance(source, Store):
        layout, begin, end = source._log_bounds()
    else:
        with open_store(source, "r", index_enabled=False, commit_log_dir=commit_log_dir) as store:
            layout, begin, end = store._log_bounds()
    return str(layout.root), tuple(map(str, layout.log_directories)), begin, max(begin, end)


def _arrow() -> ModuleType:
    try:
        import rocketstore.arrow
    except ImportError as error:
        raise ModuleNotFoundError(
            "scans as Arrow need pyarrow: pip install 'rocketstore[arrow]'", name="pyarrow"
        ) from error
    return rocketstore.arrow
