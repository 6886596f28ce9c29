"""What a read covers: options and a store to scans, one a partition. Nothing here needs Spark."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import rocketstore
from rocketstore import (
    ConfigError,
    CorruptRecordError,
    DecompressionError,
    OffsetOutOfRangeError,
    ReadFailedError,
    RocketStoreError,
)
from rocketstore.archive import ObjectStore, is_uri, shown_uri
from rocketstore.scanning import NEEDED, messages_in
from rocketstore.spark.decompression import NEEDED as NEEDED_TO_UNPACK
from rocketstore.spark.decompression import with_plain_bodies, with_plain_flags
from rocketstore.spark.errors import HINTS, SparkFaceError, bad_option, coded_errors
from rocketstore.spark.schema import scan_columns
from rocketstore.spark.sink.shards import shard_paths
from rocketstore.spark.source.conditions import keep, narrow
from rocketstore.spark.source.options import LATEST, ReadOptions
from rocketstore.spark.source.queue_offsets import (
    Bounds,
    Offsets,
    asked_end,
    asked_start,
    between,
    ends,
    starts,
)
from rocketstore.spark.source.topic_check import Present, check_archive, check_store, note_present
from rocketstore.spark.stores import open_to_read

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketstore import Scan
    from rocketstore.columns import Columns

__all__ = [
    "Bounds",
    "check_topics_of",
    "coded_read_errors",
    "kept",
    "plan",
    "plan_batch",
    "read",
    "scan_of",
    "split_scan",
]

logger = logging.getLogger(__name__)

#: Ranges that the warning of a task names; it counts the others.
NAMED_RANGES = 10

REMEDY = HINTS["topics"]

#: Error of reading → code, advice, and advice for readers that have failOnDataLoss; the first that
#: fits.
CODES: Final[tuple[tuple[type[Exception], str, str, str], ...]] = (
    (DecompressionError, "RS_BAD_COMPRESSION", f"; {HINTS['decompress']}", ""),
    (ModuleNotFoundError, "RS_NO_CODEC", "", ""),
    (CorruptRecordError, "RS_CORRUPT_RECORD", "", f"; {HINTS['skip_damage']}"),
    (OffsetOutOfRangeError, "RS_DATA_LOST", "", HINTS["data_loss"]),
    (
        FileNotFoundError,
        "RS_SEGMENT_UNREACHABLE",
        "; every executor must see the store under this path",
        "",
    ),
    (Exception, "RS_READ_FAILED", "", ""),
)


def scan_of(path: str, **given: Any) -> Scan:
    """`rocketstore.scan` of a directory or an archive; what is wrong with the place has a code, and
    so has a begin that was trimmed since it was looked up."""
    if not is_uri(path):
        try:
            with coded_errors("RS_READ_FAILED", path, OffsetOutOfRangeError):
                return rocketstore.scan(path, must_exist=None, **given)
        except OffsetOutOfRangeError as error:
            if error.asked >= error.minimum:
                raise
            lost = f"[{error.asked}, {error.minimum}) of {path} was removed before it was read"
            text = f"{lost}{HINTS['data_loss']}"
            raise SparkFaceError("RS_DATA_LOST", text) from error
    with coded_archive_errors(path):
        return rocketstore.scan(path, must_exist=None, **given)


@contextlib.contextmanager
def coded_archive_errors(uri: str) -> Iterator[None]:
    """Errors of reading an archive's manifest get a code."""
    name = shown_uri(uri)
    try:
        yield
    except FileNotFoundError as error:
        raise SparkFaceError("RS_NO_STORE", f"path = {name!r}: {error}") from error
    except ConfigError as error:
        raise SparkFaceError("RS_BAD_OPTION", f"path = {name!r}: {error.allowed}") from error
    except CorruptRecordError as error:
        text = f"path = {name!r}: {error}; failOnDataLoss=false reads both parts"
        raise SparkFaceError("RS_CORRUPT_RECORD", text) from error
    except ReadFailedError as error:
        raise unreachable(name, "the manifest", error) from error


def plan_batch(options: ReadOptions) -> tuple[list[Scan], Bounds]:
    """Scans of one batch read, in the order of the log, and the queue offsets that are wanted; of
    shards, one after the other. What cannot hold a row that fulfils the conditions is left out.

    Raises:
        SparkFaceError: RS_NO_TOPIC_THERE: there is no topic or queue of that name, unless
            failOnDataLoss is false.
    """
    present: Present = {}
    planned = _plan_batch(options, present)
    if options.fail_on_data_loss:
        if is_uri(options.path):
            check_topics_of(options.path, options.wanted, planned[0], REMEDY)
        else:
            check_store(options.path, options.wanted, present, REMEDY)
    return planned


def check_topics_of(uri: str, wanted: dict[str, Any], scans: list[Scan], *remedy: str) -> None:
    """Raises SparkFaceError: RS_NO_TOPIC_THERE, for a topic that no segment of an archive holds."""
    parts = [scan.archive for scan in scans if scan.archive is not None]
    segments = {s.start_offset: s for part in parts for s in part.segments}
    held = {topic for s in segments.values() for topic in s.topics or ()}
    if held.issuperset(wanted.get("topics") or ()):
        return
    with coded_archive_errors(uri):  # others may hold it, which were left out by time
        every = ObjectStore(uri).manifest().segments
    check_archive(shown_uri(uri), wanted, every, *remedy)


def _plan_batch(options: ReadOptions, present: Present) -> tuple[list[Scan], Bounds]:
    """As `plan_batch`; adds the topics and queues that are there."""
    narrowed = narrow(options.wanted, options.conditions)
    chosen = options if narrowed is None else replace(options, wanted=narrowed.wanted)
    if is_uri(options.path):
        none = narrowed is None or options.starting == LATEST
        return [] if none else plan(chosen, None, None, {}), {}
    shards = shard_paths(options.path)
    if shards is not None:
        return plan_shards(options, shards, present), {}
    with open_to_read(options.path, lossy=not options.fail_on_data_loss) as store:
        note_present(store, options.wanted, present)
        firsts: Offsets = {}
        lasts: Offsets = {}
        begin, end = store.begin_offset, store.visible_offset
        starting, ending = asked_start(store, options), asked_end(store, options)
        if starting == LATEST:
            begin = end
        elif isinstance(starting, dict):
            firsts, begin = starts(store, options, starting)
        if isinstance(ending, dict):
            lasts = ends(store, options, ending)
    bounds = between(firsts, lasts)
    if narrowed is None:
        return [], bounds
    first, last = max(begin, narrowed.begin), min(end, narrowed.end)
    return plan(chosen, first, last, bounds, aligned=first == begin), bounds


def plan_shards(options: ReadOptions, shards: list[str], present: Present) -> list[Scan]:
    """Scans of each; adds its topics and queues to `present`.

    Raises:
        SparkFaceError: RS_BAD_OPTION for queue offsets, which each shard has for itself.
    """
    for name, offsets in (
        ("startingOffsets", options.starting),
        ("endingOffsets", options.ending),
        ("startingOffsetsByTimestamp", options.starting_times),
        ("endingOffsetsByTimestamp", options.ending_times),
    ):
        if isinstance(offsets, dict):
            raise bad_option(name, offsets, "earliest or latest for shards, or the path of one")
    each = max(1, -(-options.min_partitions // max(1, len(shards))))
    scans: list[Scan] = []
    for shard in shards:
        scans += _plan_batch(replace(options, path=shard, min_partitions=each), present)[0]
    return scans


def plan(
    options: ReadOptions,
    begin: int | None,
    end: int | None,
    bounds: Bounds,
    *,
    aligned: bool = True,
) -> list[Scan]:
    """Splits of [begin, end). `aligned`: a record starts at `begin`. None: of all that an archive
    has."""
    if begin is not None and end is not None and begin >= end:
        return []
    more = NEEDED if not bounds else (*NEEDED, "topic", "queue_id", "queue_offset")
    if unpacks(options):
        more = (*more, *NEEDED_TO_UNPACK)
    scan = scan_of(
        options.path,
        columns=scan_columns(options.fields, more),
        begin_offset=begin,
        end_offset=end,
        aligned=aligned,
        verify=options.verify,
        on_damage="raise" if options.fail_on_data_loss else "skip",
        **options.wanted,
    )
    covered = (scan.end_offset if end is None else end) - (begin or scan.begin_offset)
    size = min(options.split_bytes, max(1, covered // options.min_partitions))
    return split_scan(scan, size)


def split_scan(scan: Scan, split_bytes: int) -> list[Scan]:
    """Its parts; what goes wrong while their begins are looked for says where."""
    with coded_read_errors(scan):
        return list(scan.split(split_bytes))


def read(scan: Scan, options: ReadOptions, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Record batches of one scan, in a task; what goes wrong says where, and what was left out is
    logged."""
    from rocketstore.spark.batches import to_batch

    with coded_read_errors(scan, skips=True), left_out_logged(scan):
        for columns, rows in messages_in(scan):
            if bounds:
                rows = both(rows, kept(columns, bounds))
            if options.conditions:
                shown = with_plain_flags(columns) if unpacks(options) else columns
                rows = both(rows, keep(shown, columns.rows, options.conditions))
            if rows is not None and not rows.any():
                continue
            whole = iter([(columns, rows)])
            for found, wanted in with_plain_bodies(columns, rows) if unpacks(options) else whole:
                batch = to_batch(found, columns.rows, options.fields, wanted)
                if batch.num_rows:
                    yield batch


def both(rows: Any, more: Any) -> Any:
    """Rows that are in both of two boolean arrays; None in the first means all."""
    return more if rows is None else rows & more


@contextlib.contextmanager
def left_out_logged(scan: Scan) -> Iterator[None]:
    """Logs what a scan that skips damage has left out, also when the reader stops before its
    end."""
    try:
        yield
    finally:
        report = scan.report
        if report.damage_count and scan.on_damage == "skip":
            ranges = [f"[{d.start}, {d.end}) {d.reason}" for d in report.damage[:NAMED_RANGES]]
            if (more := report.damage_count - len(ranges)) > 0:
                ranges.append(f"{more} more")
            logger.warning("host=%s path=%s part=[%s, %s): left out by failOnDataLoss=false: %s",
                           socket.gethostname(), scan.path, scan.begin_offset, scan.end_offset,
                           "; ".join(ranges))  # fmt: skip


@contextlib.contextmanager
def coded_read_errors(scan: Scan, *, skips: bool = False) -> Iterator[None]:
    """Errors of reading a part of a log get a code, the host, the path and the part. `skips`:
    whether the reader has the option failOnDataLoss."""
    try:
        check_reachable(scan)
        yield
    except SparkFaceError:
        raise
    except (RocketStoreError, ModuleNotFoundError, OSError) as error:
        raise coded(error, scan, skips) from error


def coded(error: Exception, scan: Scan, skips: bool) -> SparkFaceError:
    """An error of reading a part of a log, with the code and the advice of CODES."""
    place = f"host={socket.gethostname()} path={scan.path}"
    part = f"[{scan.begin_offset}, {scan.end_offset})"
    if scan.archive is not None and isinstance(error, ReadFailedError | OSError):
        return unreachable(scan.path, part, error)
    code, advice, own = next(row[1:] for row in CODES if isinstance(error, row[0]))
    text = str(error)
    if isinstance(error, OffsetOutOfRangeError) and error.asked < error.minimum:
        text = f"[{error.asked}, {error.minimum}) was removed before it was read"
    return SparkFaceError(code, f"{place} part={part}: {text}{advice}{own if skips else ''}")


def check_reachable(scan: Scan) -> None:
    """Raises FileNotFoundError where no file of the log is to be seen. A scan takes those for
    damage, or trimmed; here the host has the store under another name, or not at all."""
    if scan.archive is not None or scan.begin_offset == scan.end_offset:
        return  # or it is a store without a message
    directories = scan.log_directories or (os.path.join(scan.path, "commitlog"),)
    if not any(map(holds_files, directories)):
        raise FileNotFoundError(errno.ENOENT, "no file of the log is there", directories[0])


def holds_files(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(entries)
    except (FileNotFoundError, NotADirectoryError):
        return False


def unreachable(path: str, part: str, error: Exception) -> SparkFaceError:
    """Of an archive: what to do depends on whether the object is gone, or the place is."""
    if isinstance(error, FileNotFoundError):
        todo = "put the object back, or ship the store to another place"
    else:
        todo = "this host needs a way to the place, and credentials in its environment"
    place = f"host={socket.gethostname()} path={path}"
    return SparkFaceError("RS_SEGMENT_UNREACHABLE", f"{place} part={part}: {error}; {todo}")


def unpacks(options: ReadOptions) -> bool:
    return options.decompress and any(field.column == "body" for field in options.fields)


def kept(columns: Columns, bounds: Bounds) -> Any:
    """Which rows lie in the queue offsets that are wanted."""
    keep = np.ones(columns.rows, bool)
    topics, queues, offsets = columns["topic"], columns["queue_id"], columns["queue_offset"]
    for (topic, queue_id), (first, last) in bounds.items():
        if topic in topics.values:
            code = topics.values.index(topic)
            mine = (topics.codes == code) & (queues == queue_id)
            keep &= ~mine | ((offsets >= first) & (offsets < last))
    return keep
