"""What a read covers: options and a store to scans, one a partition. Nothing here needs Spark."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import rocketstore
from rocketstore import (
    ConfigError,
    CorruptRecordError,
    DecompressionError,
    OffsetOutOfRangeError,
    ReadFailedError,
    RocketStoreError,
    Store,
)
from rocketstore.archive import ObjectStore, is_uri, shown_uri
from rocketstore.scanning import NEEDED, messages_in
from rocketstore.spark.decompression import NEEDED as NEEDED_TO_UNPACK
from rocketstore.spark.decompression import with_plain_bodies, with_plain_flags
from rocketstore.spark.errors import HINTS, SparkFaceError, no_store, told_path
from rocketstore.spark.option_checks import bad_option
from rocketstore.spark.read.conditions import keep, narrow
from rocketstore.spark.read.options import LATEST, ReadOptions
from rocketstore.spark.read.queue_offsets import Bounds, resolve
from rocketstore.spark.read.topic_check import Present, check_archive, check_store, note_present
from rocketstore.spark.schema import scan_columns
from rocketstore.spark.write.shards import shard_paths

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Bounds",
    "check_topics_of",
    "kept",
    "open_store",
    "plan",
    "plan_batch",
    "read",
    "scan_of",
    "split_scan",
    "store_uuid",
    "told_where",
]

logger = logging.getLogger(__name__)

#: Of what a task left out, that its warning names; it counts the others.
NAMED_RANGES = 10

REMEDY = HINTS["topics"]


def open_store(path: str) -> Store:
    """The store for reading; errors with a code."""
    with told_path("RS_READ_FAILED", path):
        try:
            return rocketstore.open(path, "r")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_store(path, error) from None
        except PermissionError as error:
            raise SparkFaceError("RS_NO_PERMISSION", f"path = {path!r}: {error}") from error


def store_uuid(path: str) -> str:
    """What tells this store from another under the same path; empty where only RocketMQ wrote."""
    name = os.path.join(path, "rocketstore", "store.json")
    with told_path("RS_READ_FAILED", path):
        try:
            with open(name, encoding="utf-8") as file:
                return str(json.load(file)["uuid"])
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return ""


def scan_of(path: str, **given: Any) -> Any:
    """`rocketstore.scan` of a directory or an archive; what is wrong with the place has a code, and so has a begin
    that was trimmed since it was looked up."""
    if not is_uri(path):
        try:
            with told_path("RS_READ_FAILED", path, OffsetOutOfRangeError):
                return rocketstore.scan(path, **given)
        except OffsetOutOfRangeError as error:
            if error.asked >= error.minimum:
                raise
            lost = f"[{error.asked}, {error.minimum}) of {path} was removed before it was read"
            text = f"{lost}{HINTS['data_loss']}"
            raise SparkFaceError("RS_DATA_LOST", text) from error
    with told_place(path):
        return rocketstore.scan(path, **given)


@contextlib.contextmanager
def told_place(uri: str) -> Iterator[None]:
    """Errors of reading an archive's manifest get a code."""
    name = shown_uri(uri)
    try:
        yield
    except FileNotFoundError as error:
        raise SparkFaceError("RS_NO_STORE", f"path = {name!r}: {error}") from error
    except ConfigError as error:
        raise SparkFaceError("RS_BAD_OPTION", f"path = {name!r}: {error.allowed}") from error
    except ReadFailedError as error:
        raise unreachable(name, "the manifest", error) from error


def plan_batch(options: ReadOptions) -> tuple[list[Any], Bounds]:
    """Scans of one batch read, in the order of the log, and the queue offsets that are wanted; of shards,
    one after the other. What cannot hold a row that fulfils the conditions is left out.

    Raises:
        SparkFaceError: RS_NO_TOPIC_THERE: there is no topic or queue of that name, unless failOnDataLoss is
            false.
    """
    present: Present = {}
    planned = _plan_batch(options, present)
    if options.fail_on_data_loss:
        if is_uri(options.path):
            check_topics_of(options.path, options.wanted, planned[0], REMEDY)
        else:
            check_store(options.path, options.wanted, present, REMEDY)
    return planned


def check_topics_of(uri: str, wanted: dict[str, Any], scans: list[Any], *remedy: str) -> None:
    """Raises SparkFaceError: RS_NO_TOPIC_THERE, for a topic that no segment of an archive holds."""
    segments = {s.start_offset: s for scan in scans for s in scan.archive.segments}
    held = {topic for s in segments.values() for topic in s.topics or ()}
    if held.issuperset(wanted.get("topics") or ()):
        return
    with told_place(uri):  # others may hold it, which were left out by time
        every = ObjectStore(uri).manifest().segments
    check_archive(shown_uri(uri), wanted, every, *remedy)


def _plan_batch(options: ReadOptions, present: Present) -> tuple[list[Any], Bounds]:
    """As `plan_batch`; adds the topics and queues that are there."""
    narrowed = narrow(options.wanted, options.conditions)
    chosen = options if narrowed is None else replace(options, wanted=narrowed.wanted)
    if is_uri(options.path):
        none = narrowed is None or options.starting == LATEST
        return [] if none else plan(chosen, None, None, {}), {}
    shards = shard_paths(options.path)
    if shards is not None:
        return plan_shards(options, shards, present), {}
    with open_store(options.path) as store:
        note_present(store, options.wanted, present)
        bounds: Bounds = {}
        begin, end = store.begin_offset, store.visible_offset
        if options.starting == LATEST:
            begin = end
        elif isinstance(options.starting, dict):
            begin = resolve(store, options, options.starting, bounds, 0)
        if isinstance(options.ending, dict):
            resolve(store, options, options.ending, bounds, 1)
    if narrowed is None:
        return [], bounds
    first, last = max(begin, narrowed.begin), min(end, narrowed.end)
    return plan(chosen, first, last, bounds, aligned=first == begin), bounds


def plan_shards(options: ReadOptions, shards: list[str], present: Present) -> list[Any]:
    """Scans of each; adds its topics and queues to `present`.

    Raises:
        SparkFaceError: RS_BAD_OPTION for queue offsets, which each shard has for itself.
    """
    for name, offsets in (
        ("startingOffsets", options.starting),
        ("endingOffsets", options.ending),
    ):
        if isinstance(offsets, dict):
            raise bad_option(name, offsets, "earliest or latest for shards, or the path of one")
    each = max(1, -(-options.min_partitions // max(1, len(shards))))
    scans: list[Any] = []
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
) -> list[Any]:
    """Splits of [begin, end). `aligned`: a record starts at `begin`. None: of all that an archive has."""
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


def split_scan(scan: Any, split_bytes: int) -> list[Any]:
    """Its parts; what goes wrong while their begins are looked for says where."""
    with told_where(scan):
        return list(scan.split(split_bytes))


def read(scan: Any, options: ReadOptions, bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Record batches of one scan, in a task; what goes wrong says where, and what was left out is logged."""
    from rocketstore.spark.batches import to_batch

    with told_where(scan, skips=True), told_lost(scan):
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
    """Rows that are in both of two boolean arrays; None in the first stands for all."""
    return more if rows is None else rows & more


@contextlib.contextmanager
def told_lost(scan: Any) -> Iterator[None]:
    """Logs what a scan that skips damage has left out; also when who reads has enough of it."""
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
def told_where(scan: Any, *, skips: bool = False) -> Iterator[None]:
    """Errors of reading a part of a log get a code, the host, the place and the part. `skips`: whether who reads has
    the option failOnDataLoss."""
    place = f"host={socket.gethostname()} path={scan.path}"
    part = f"[{scan.begin_offset}, {scan.end_offset})"
    try:
        check_reachable(scan)
        yield
    except SparkFaceError:
        raise
    except DecompressionError as error:
        raise SparkFaceError(
            "RS_BAD_COMPRESSION",
            f"{place} part={part}: {error}; {HINTS['decompress']}",
        ) from error
    except ModuleNotFoundError as error:
        raise SparkFaceError("RS_NO_CODEC", f"{place} part={part}: {error}") from error
    except CorruptRecordError as error:
        more = f"; {HINTS['skip_damage']}" if skips else ""
        text = f"{place} part={part}: {error}{more}"
        raise SparkFaceError("RS_CORRUPT_RECORD", text) from error
    except OffsetOutOfRangeError as error:
        lost = f"[{error.asked}, {error.minimum}) was removed before it was read"
        text = lost if error.asked < error.minimum else str(error)
        more = HINTS["data_loss"] if skips else ""
        raise SparkFaceError("RS_DATA_LOST", f"{place} part={part}: {text}{more}") from error
    except (ReadFailedError, OSError) as error:
        if scan.archive is not None:
            raise unreachable(scan.path, part, error) from error
        if isinstance(error, FileNotFoundError):
            raise SparkFaceError(
                "RS_SEGMENT_UNREACHABLE",
                f"{place} part={part}: {error}; every executor must see the store under this path",
            ) from error
        raise SparkFaceError("RS_READ_FAILED", f"{place} part={part}: {error}") from error
    except RocketStoreError as error:
        raise SparkFaceError("RS_READ_FAILED", f"{place} part={part}: {error}") from error


def check_reachable(scan: Any) -> None:
    """Raises FileNotFoundError where no file of the log is to be seen. A scan takes those for damage, or trimmed;
    here the host has the store under another name, or not at all."""
    if scan.archive is not None or scan.begin_offset == scan.end_offset:
        return  # or it is a store into which nobody has put anything
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


def kept(columns: Any, bounds: Bounds) -> Any:
    """Which rows lie in the queue offsets that are wanted."""
    keep = np.ones(columns.rows, bool)
    topics, queues, offsets = columns["topic"], columns["queue_id"], columns["queue_offset"]
    for (topic, queue_id), (first, last) in bounds.items():
        if topic in topics.values:
            code = topics.values.index(topic)
            mine = (topics.codes == code) & (queues == queue_id)
            keep &= ~mine | ((offsets >= first) & (offsets < last))
    return keep
