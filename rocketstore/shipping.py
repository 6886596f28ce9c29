"""Shipping: copies sealed segments to an archive, and swaps its manifest when each is there."""

from __future__ import annotations

import itertools
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rocketstore._native.format.scanner import VERIFY_LENIENT
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.archive.manifest import TOPICS_MAX, Piece, Segment
from rocketstore.archive.object_store import ObjectStore, shown_uri
from rocketstore.archive.shipped import note_shipped
from rocketstore.archive.writer import ArchiveWriter
from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    ConfigError,
    CorruptRecordError,
    MissingSegmentsError,
    ReadFailedError,
    RocketStoreError,
)
from rocketstore.log.layout.log_dirs import gap_text
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.layout.store_json import is_foreign
from rocketstore.log.read.column_reader import LogFiles, ScanReport
from rocketstore.scanning.parallel import CHECKS, ScanPlan, ScanReading
from rocketstore.scanning.scan import CHUNK_BYTES
from rocketstore.values.arguments import Progress
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.plural import counted
from rocketstore.values.public import public
from rocketstore.values.record_filter import RecordFilter

__all__ = ["ShipReport", "ship_store"]

#: Bytes that a reader fetches at once, about: a piece ends at the first record after them.
PIECE_BYTES: Final = 8 << 20
#: Segments that a note names.
NAMED_MAX: Final = 10


@public
@dataclass(frozen=True, slots=True)
class ShipReport:
    """What `ship` did. `segments` of `bytes` were copied in `seconds`; the archive holds
    `archived_segments` now, and ends at physical offset `end_offset`. `missing_bytes` below that
    are not in it: their segments were removed before they were shipped, or are not there.

    `left_begin` to `left_end`, physical offsets, is the rest of the log that is not sealed yet and
    was not shipped, `left_messages` the messages in it by topic. They are in no archive before
    their segment is full and `ship` runs again, or `ship` runs with `tail=True`. `tail_bytes` of
    the segment that is not full are in the archive."""

    segments: int
    bytes: int
    seconds: float
    archived_segments: int
    end_offset: int
    missing_bytes: int
    left_begin: int = 0
    left_end: int = 0
    left_messages: tuple[tuple[str, int], ...] = ()
    tail_bytes: int = 0


def ship_store(
    engine: Engine,
    uri: str,
    progress: Progress | None = None,
    *,
    tail: bool = False,
    force: bool = False,
) -> ShipReport:
    """`ship` of an open store. Raises the first error of segments that cannot be read once all
    others are shipped: a caller that trims up to `end_offset` must not take such a segment for
    shipped."""
    began = time.monotonic()
    layout, begin, end = engine.log_bounds()
    durable = engine.positions.flushed
    objects = ObjectStore(uri)
    _check_options(objects, tail, force)
    files = LogFiles(layout)
    try:
        archive = ArchiveWriter(objects, layout, files, lambda: _end_of(engine), force=force)
        size = files.size
        named = {s.start_offset for s in archive.manifest.segments if not s.tail_of}
        sealed = [s for s in files.starts() if s + size > begin and s + size <= durable]
        parts = [(start, start + size) for start in sealed if start not in named]
        if tail:
            archive.drop_tails()
            parts += _tail_of(files, archive, begin, durable)
        total = sum(last - first for first, last in parts)
        count = copied = 0
        bad: dict[int, RocketStoreError] = _absent(files, begin, durable, named)

        def tell(done: int) -> None:
            if progress is not None:
                progress("ship", copied + done, total)

        tell(0)
        for start, last in parts:
            file = files.at(start)
            if file is None:  # it was trimmed meanwhile
                continue
            if file.size < last - start:  # others follow
                bad[start] = CorruptRecordError(start + file.size, "short segment")
                continue
            try:
                segment = _surveyed(layout, files, file, last)
            except (CorruptRecordError, ReadFailedError) as error:
                bad[start] = without_frames(error)
                continue
            archive.add(_copied(objects, file, segment, tell))
            count += not segment.tail_of
            copied += segment.size
        note_shipped(layout, shown_uri(uri), archive.manifest, files)
        if bad:
            raise _with_lost(_first_of(bad, count), engine)
        _refuse_missing(engine, layout, files, count)
        segments = archive.manifest.segments
        tails = [s for s in segments if s.tail_of]
        begin = max([begin, *(start + size for start in sealed), *(s.end_offset for s in tails)])
        left = _left_behind(layout, files, begin, end)
    finally:
        files.close()
    present = sum(segment.size for segment in segments)
    return ShipReport(
        segments=count,
        bytes=copied,
        seconds=time.monotonic() - began,
        archived_segments=len(segments) - len(tails),
        end_offset=archive.manifest.end_offset,
        missing_bytes=archive.manifest.end_offset - archive.manifest.begin_offset - present,
        left_begin=begin,
        left_end=max(begin, end),
        left_messages=left,
        tail_bytes=sum(segment.size for segment in tails),
    )


def _check_options(objects: ObjectStore, tail: object, force: object) -> None:
    for name, value in (("tail", tail), ("force", force)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} = {value!r}: True or False")
    if tail and not objects.replaces_at_once:
        text = "False: this place replaces an object in two steps, and a stop in between loses it"
        raise ConfigError("tail", tail, text)


def _tail_of(
    files: LogFiles, archive: ArchiveWriter, begin: int, durable: int
) -> list[tuple[int, int]]:
    """[begin, end) of the segment that is not full, as far as it is on the disk; nothing where the
    archive has that."""
    end = {segment.start_offset: segment.end_offset for segment in archive.manifest.segments}
    return [
        (start, durable)
        for start in files.starts()
        if max(start, end.get(start, 0), begin) < durable < start + files.size
    ]


def _absent(
    files: LogFiles, begin: int, durable: int, named: set[int]
) -> dict[int, RocketStoreError]:
    """Segments between others that are neither in the log nor in the archive."""
    size, starts = files.size, files.starts()
    known = {*starts, *named}
    first = max([*starts[:1], begin - begin % size]) if size else 0
    ends = min(durable, starts[-1]) if starts else 0
    return {
        start: CorruptRecordError(start, "missing segment")
        for start in (range(first, ends, size) if size else ())
        if start not in known
    }


def _first_of(bad: dict[int, RocketStoreError], shipped: int) -> RocketStoreError:
    """The error of the first segment that was left out, with notes on the others."""
    first, *others = sorted(bad)
    error = bad[first]
    names = [segment_name(start) for start in (first, *others)]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    error.add_note(f"not shipped: {', '.join(names[:NAMED_MAX])}{more}")
    error.add_note(f"{counted(shipped, 'other segment')} shipped by this call")
    return error


def _refuse_missing(engine: Engine, layout: StoreLayout, files: LogFiles, shipped: int) -> None:
    """MissingSegmentsError where a reader's log lacks segments at an end: none follows that would
    show it. A writer that opened such a log has given them up. Those between others are in the
    archive by now."""
    found = () if isinstance(engine, WritingEngine) else engine.recovery.missing
    gaps = [gap_text(a + files.size, b) for a, b in itertools.pairwise(files.starts())]
    missing = [text for text in found if not any(f" {gap};" in text for gap in gaps)]
    if missing:
        text = f"{layout.logs[0]}: {'; '.join(missing)}"
        if lost := _lost(engine):
            text = f"{text}; {lost}"
        error = MissingSegmentsError(f"{text}; all segments that are there are shipped")
        error.add_note(f"{counted(shipped, 'segment')} shipped by this call")
        raise error


def _end_of(engine: Engine) -> int:
    """The end of the log. Where a reader lacks its last files, the log had them."""
    if isinstance(engine, WritingEngine) or not engine.recovery.missing:
        return engine.log_bounds()[2]
    return 1 << 63


def _with_lost(error: RocketStoreError, engine: Engine) -> RocketStoreError:
    if lost := _lost(engine):
        error.add_note(lost)
    return error


def _lost(engine: Engine) -> str:
    """How many messages are not there, as far as the queues know; "" for none."""
    found = [one for one in engine.recovery.lost_messages if one.why != "damaged"]
    count = counted(sum(one.count for one in found), "message")
    names = "; ".join(f"{one.topic}/{one.queue_id} {one.first} … {one.last}" for one in found[:20])
    more = f" and {counted(len(found) - 20, 'more queue')}" if len(found) > 20 else ""
    return f"{count} that the queues know are not there: {names}{more}" if found else ""


def _left_behind(
    layout: StoreLayout, files: LogFiles, begin: int, end: int
) -> tuple[tuple[str, int], ...]:
    """Messages by topic in the part of the log that is not sealed."""
    if end <= begin:
        return ()
    counts: Counter[str] = Counter()
    plan = replace(_plan(layout, begin, end, lenient=True), columns=("topic",), on_damage="skip")
    for columns in ScanReading(plan).chunks(files, ScanReport()):
        found = columns["topic"]
        codes, numbers = np.unique(found.codes, return_counts=True)
        counts.update(
            {
                found.values[code]: n
                for code, n in zip(codes.tolist(), numbers.tolist(), strict=True)
            }
        )
    return tuple(sorted(counts.items()))


def _plan(layout: StoreLayout, begin: int, end: int, *, lenient: bool) -> ScanPlan:
    """Reads topic and store time of every record in [begin, end), where a record begins."""
    return ScanPlan(
        ranges=((begin, end),),
        begin_offset=begin,
        end_offset=end,
        limit_offset=end,
        aligned=True,
        whole=True,
        columns=("topic", "store_timestamp_ms"),
        filter=RecordFilter(),
        verify=CHECKS[True] | (VERIFY_LENIENT if lenient else 0),
        chunk_bytes=min(CHUNK_BYTES, PIECE_BYTES),
        on_damage="raise",
        threads=1,
        open_files=lambda: LogFiles(layout),
    )


def _surveyed(layout: StoreLayout, files: LogFiles, file: MappedFile, end: int) -> Segment:
    """What the records of a segment up to `end` show, checked one by one; its pieces have no
    checksums yet."""
    begin, report = file.start_offset, ScanReport()
    foreign = is_foreign(layout)
    plan = _plan(layout, begin, end, lenient=foreign)
    topics: set[str] = set()
    times: list[int] = []
    ends: list[int] = []
    for columns in ScanReading(plan).chunks(files, report):
        position = columns.begin_offset - begin
        if position - (ends[-1] if ends else 0) >= PIECE_BYTES:
            ends.append(position)
        found = columns["topic"]
        topics |= {found.values[code] for code in np.unique(found.codes).tolist()}
        stored = columns["store_timestamp_ms"]
        times += [int(stored.min()), int(stored.max())]
    size = end - begin
    ends.append(size)
    return Segment(
        start_offset=file.start_offset,
        size=size,
        crc32=0,
        records=report.records,
        store_times_ms=(min(times), max(times)) if times else None,
        topics=None if len(topics) > TOPICS_MAX else tuple(sorted(topics)),
        foreign=foreign,
        pieces=tuple((end, 0) for end in ends),
        tail_of=files.size if size < files.size else 0,
    )


def _copied(
    objects: ObjectStore, file: MappedFile, segment: Segment, tell: Callable[[int], None]
) -> Segment:
    """Writes a segment as an object; gives it with the checksums of what was written."""
    pieces: list[Piece] = []
    crc32 = 0

    def chunks() -> Iterator[bytes]:
        nonlocal crc32
        begin = 0
        for end, _ in segment.pieces:
            data = file.read(begin, end - begin)
            crc32 = zlib.crc32(data, crc32)
            pieces.append((end, zlib.crc32(data)))
            yield data
            tell(end)
            begin = end

    objects.put(segment.name, chunks())
    return replace(segment, crc32=crc32, pieces=tuple(pieces))
