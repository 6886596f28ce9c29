"""`rocketstore.scan`: the messages of a store in physical order, as columns, without a lock."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from rocketstore._native.columns import ColumnScanner
from rocketstore._native.scanner import VERIFY_BODY_CRC, VERIFY_LENIENT, VERIFY_RECORD_CRC
from rocketstore.columns import COLUMNS, Columns, columns_of
from rocketstore.errors import OffsetOutOfRangeError
from rocketstore.log.column_walk import ColumnWalk, LogFiles, ScanReport
from rocketstore.log.layout import StoreLayout
from rocketstore.log.store_state import load_store_state
from rocketstore.opening import open_store
from rocketstore.store import Store
from rocketstore.timestamps import Timestamp, timestamp_ms

__all__ = ["Scan", "ScanReport", "scan"]

Queues = Collection[int] | Mapping[str, Collection[int]]
Verify = bool | Literal["body", "record"]
OnDamage = Literal["raise", "skip"]

TIME_MIN: Final = -(2**63)
TIME_MAX: Final = 2**63 - 1
#: Rows of a chunk at most.
CHUNK_ROWS: Final = 8192
CHUNK_BYTES: Final = 2 << 20
CHUNK_BYTES_MAX: Final = 1 << 30
SPLIT_BYTES: Final = 256 << 20
#: What `columns=None` means: everything that `Message` knows, bodies copied.
ALL: Final = tuple(name for name in COLUMNS if name not in ("body_size", "body_view"))
#: How far the clock of another program than ours may have been put back between two of its messages.
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A part of a log and what is wanted of it: made by `rocketstore.scan`, read by iterating.

    Each iteration begins anew, maps the files that it needs and takes no lock, so a scan can be pickled and
    read in another process or on another machine that sees the files. Which part of the log it covers was
    settled when it was made: [begin_offset, end_offset), never beyond what was visible then.
    """

    path: str
    begin_offset: int
    end_offset: int
    columns: tuple[str, ...]
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[int] | tuple[tuple[str, frozenset[int]], ...] | None = None
    tags: frozenset[str] | None = None
    start_timestamp_ms: int = TIME_MIN
    end_timestamp_ms: int = TIME_MAX
    verify: Verify = True
    chunk_bytes: int = CHUNK_BYTES
    on_damage: OnDamage = "raise"
    #: Where the log ended when the scan was made.
    limit_offset: int
    #: Whether begin_offset is known to be the start of a record, and end_offset too.
    aligned: bool = True
    whole: bool = False
    log_directories: tuple[str, ...] = ()
    #: Of the latest iteration in this process.
    report: ScanReport = field(default_factory=ScanReport, compare=False, repr=False)

    def __iter__(self) -> Iterator[Columns]:
        """Chunks of at most `chunk_bytes` of records and 8192 rows; none without a row.

        Raises:
            CorruptRecordError: no record can be believed there, and `on_damage` is "raise"; what
                lies before it was handed out.
            ReadFailedError: the disk does not give the bytes back.
        """
        report = ScanReport()
        object.__setattr__(self, "report", report)
        layout = self._layout()
        files = LogFiles(layout)
        try:
            begin = self.begin_offset
            if not self.aligned:
                begin = files.record_start(begin, self.end_offset)
            walk = ColumnWalk(
                files,
                self._scanner(layout),
                begin,
                self.end_offset,
                self.limit_offset,
                self.whole,
                self.chunk_bytes,
                self.on_damage,
                report,
            )
            for chunk in walk.chunks():
                arrays = columns_of(chunk.arrays, self.columns)
                yield Columns(arrays, chunk.rows, chunk.begin, chunk.end)
        finally:
            files.close()

    def split(self, split_bytes: int = SPLIT_BYTES) -> list[Scan]:
        """The same scan in parts of about `split_bytes` of the log, in order; none when there is nothing.

        Each record belongs to exactly one part. Parts begin where a segment does, or where a record can be
        believed; a part that finds out, while it is read, that the next one does not begin at a record raises
        `CorruptRecordError`.
        """
        if split_bytes < 1:
            raise ValueError(f"split_bytes = {split_bytes}: at least 1")
        files = LogFiles(self._layout())
        bounds = [self.begin_offset]
        try:
            while bounds[-1] < self.end_offset:
                bounds.append(self._next_bound(files, bounds[-1], split_bytes))
        finally:
            files.close()
        pairs = list(itertools.pairwise(bounds))
        return [
            replace(
                self,
                begin_offset=begin,
                end_offset=end,
                aligned=self.aligned or begin > self.begin_offset,
                whole=self.whole or end < self.end_offset,
                report=ScanReport(),
            )
            for begin, end in pairs
        ]

    def _next_bound(self, files: LogFiles, begin: int, split_bytes: int) -> int:
        """A good place about `split_bytes` behind `begin`: the end of a segment if that is near."""
        target = begin + split_bytes
        if files.size:
            segment_end = (begin // files.size + 1) * files.size
            if segment_end - begin <= split_bytes + split_bytes // 2:
                return min(segment_end, self.end_offset)
        if self.end_offset - target <= split_bytes // 2:
            return self.end_offset
        return files.record_start(target, self.end_offset)

    def _layout(self) -> StoreLayout:
        return StoreLayout(Path(self.path), tuple(map(Path, self.log_directories)))

    def _scanner(self, layout: StoreLayout) -> ColumnScanner:
        bits = {"body": VERIFY_BODY_CRC, "record": VERIFY_RECORD_CRC}
        both = VERIFY_BODY_CRC | VERIFY_RECORD_CRC
        verify = bits[self.verify] if isinstance(self.verify, str) else both * self.verify
        if verify & VERIFY_RECORD_CRC and _is_foreign(layout):
            verify |= VERIFY_LENIENT
        return ColumnScanner(
            self.columns,
            room=CHUNK_ROWS,
            verify=verify,
            accept=_acceptance(self.topics, self.topic_pattern, self.queues),
            tags=None if self.tags is None else [tag.encode() for tag in self.tags],
            from_ms=self.start_timestamp_ms,
            to_ms=self.end_timestamp_ms,
        )


def scan(
    source: str | os.PathLike[str] | Store,
    *,
    columns: Iterable[str] | None = None,
    topics: str | Iterable[str] | None = None,
    topic_pattern: str | None = None,
    queues: int | Queues | None = None,
    tags: str | Iterable[str] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    start_timestamp: Timestamp | None = None,
    end_timestamp: Timestamp | None = None,
    verify: Verify = True,
    chunk_bytes: int = CHUNK_BYTES,
    on_damage: OnDamage = "raise",
    aligned: bool = False,
    commit_log_dir: str = "",
) -> Scan:
    """The messages of a store, in physical order, as columns: for what looks at many of them.

        for columns in rocketstore.scan("data/orders", topics="orders", columns=["queue_id", "body"]):
            print(columns.rows, columns["queue_id"].max(), columns["body"][0])

    A store of another process, or a dead one, is read without a lock; nothing is created or changed. The end
    is what is visible now; what comes later needs a new scan.

    Args:
        source: A path, or an open store.
        columns: Names of `COLUMNS`; None: all, with bodies copied. `body_view` leaves bodies in the file.
        topics: Only these topics, by name.
        topic_pattern: Only topics that match this regular expression as a whole.
        queues: Only these queue ids; or queue ids by topic, which leaves other topics out.
        tags: Only messages with one of these tags (also "a || b").
        start_offset: Physical offset. Records that begin there or behind it. The end of a record that
            began before it is passed over, unless `aligned`. None: the begin of the log.
        end_offset: Physical offset. Records that begin before it. None: the visible end.
        start_timestamp, end_timestamp: Only messages stored at or after, and before, these times:
            milliseconds or aware datetimes. Segments that cannot have any are not read; where RocketMQ
            wrote, its clock may have gone back by a day at most.
        verify: Which checksums are tested, in every record whether it is wanted or not: True both, "body",
            "record", False none.
        chunk_bytes: Of records in a chunk, about: 1 … 2^30.
        on_damage: "raise" `CorruptRecordError`, or "skip" to the next record that can be believed and
            count what is lost in `report`.
        aligned: start_offset is the start of a record: anything else there is damage.
        commit_log_dir: All directories of the log, with "," between them, where it has several.

    Raises:
        ValueError, TypeError: an argument that means nothing.
        OffsetOutOfRangeError: start_offset or end_offset outside the log. With on_damage="skip" the part
            below the begin of the log counts as lost instead.
        FileNotFoundError, NotADirectoryError, PermissionError: as the system says.
    """
    if not 1 <= chunk_bytes <= CHUNK_BYTES_MAX:
        raise ValueError(f"chunk_bytes = {chunk_bytes}: 1 … {CHUNK_BYTES_MAX}")
    if on_damage not in ("raise", "skip"):
        raise ValueError(f"on_damage = {on_damage!r}: 'raise' or 'skip'")
    if not isinstance(verify, bool) and verify not in ("body", "record"):
        raise ValueError(f"verify = {verify!r}: True, False, 'body' or 'record'")
    if topics is not None and topic_pattern is not None:
        raise ValueError("topics and topic_pattern exclude each other")
    if topic_pattern is not None:
        re.compile(topic_pattern)
    path, directories, begin, end = _bounds(source, commit_log_dir)
    first = begin if start_offset is None else start_offset
    last = end if end_offset is None else end_offset
    if first > end or first < 0 or (first < begin and on_damage == "raise"):
        raise OffsetOutOfRangeError(first, begin, end)
    if last > end or last < first:
        raise OffsetOutOfRangeError(last, first, end)
    return Scan(
        path=path,
        begin_offset=first,
        end_offset=last,
        columns=_columns(columns),
        topics=_names("topics", topics),
        topic_pattern=topic_pattern,
        queues=_queues(queues),
        tags=_tags(tags),
        start_timestamp_ms=_time("start_timestamp", start_timestamp, TIME_MIN),
        end_timestamp_ms=_time("end_timestamp", end_timestamp, TIME_MAX),
        verify=verify,
        chunk_bytes=chunk_bytes,
        on_damage=on_damage,
        limit_offset=end,
        aligned=aligned or start_offset is None or first <= begin,
        whole=last == end,
        log_directories=directories,
    )


def _bounds(
    source: str | os.PathLike[str] | Store, commit_log_dir: str
) -> tuple[str, tuple[str, ...], int, int]:
    """Path, log directories, begin and visible end of a store."""
    if isinstance(source, Store):
        layout, begin, end = source._engine_bounds()
    else:
        with open_store(source, "r", index_enabled=False, commit_log_dir=commit_log_dir) as store:
            layout, begin, end = store._engine_bounds()
    return str(layout.root), tuple(map(str, layout.log_directories)), begin, max(begin, end)


def _is_foreign(layout: StoreLayout) -> bool:
    """Whether another program may have written here: what it put again can have a stale record CRC."""
    state = load_store_state(layout)
    return state is None or bool(state.foreign)


def _acceptance(
    topics: frozenset[str] | None,
    pattern: str | None,
    queues: frozenset[int] | tuple[tuple[str, frozenset[int]], ...] | None,
) -> Callable[[str], bool | frozenset[int]] | None:
    """What the scanner asks once for each topic."""
    if topics is None and pattern is None and queues is None:
        return None
    compiled = None if pattern is None else re.compile(pattern)
    by_topic = dict(queues) if isinstance(queues, tuple) else None

    def accept(topic: str) -> bool | frozenset[int]:
        if topics is not None and topic not in topics:
            return False
        if compiled is not None and compiled.fullmatch(topic) is None:
            return False
        if by_topic is not None:
            return by_topic.get(topic, False)
        return True if queues is None or isinstance(queues, tuple) else queues

    return accept


def _columns(names: Iterable[str] | None) -> tuple[str, ...]:
    if names is None:
        return ALL
    if isinstance(names, str):
        raise TypeError(f"columns are several names: [{names!r}]")
    wanted = tuple(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown:
        raise ValueError(f"no such column: {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    return wanted


def _names(name: str, given: str | Iterable[str] | None) -> frozenset[str] | None:
    if given is None:
        return None
    found = frozenset((given,) if isinstance(given, str) else given)
    if not all(isinstance(text, str) for text in found):
        raise TypeError(f"{name} = {given!r}: a name or several")
    return found


def _tags(given: str | Iterable[str] | None) -> frozenset[str] | None:
    if isinstance(given, str):
        given = given.split("||")
    found = _names("tags", given)
    if found is None:
        return None
    words = frozenset(text.strip() for text in found)
    if "" in words or not words:
        raise ValueError(f"tags is None, a tag, 'a || b' or several tags, not {given!r}")
    return None if "*" in words else words


def _queues(
    given: int | Queues | None,
) -> frozenset[int] | tuple[tuple[str, frozenset[int]], ...] | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        return tuple(sorted((topic, _ids(ids)) for topic, ids in given.items()))
    return _ids((given,) if isinstance(given, int) else given)


def _ids(given: Collection[int]) -> frozenset[int]:
    found = frozenset(given)
    for queue_id in found:
        if isinstance(queue_id, bool) or not isinstance(queue_id, int):
            raise TypeError(f"queues = {given!r}: whole numbers")
        if not -(2**31) <= queue_id < 2**31:
            raise ValueError(f"queues = {given!r}: numbers of 32 bits")
    return found


def _time(name: str, given: Timestamp | None, default: int) -> int:
    return default if given is None else timestamp_ms(name, given)
