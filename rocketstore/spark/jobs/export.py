"""Messages as Parquet, by topic and day, written where the log is read."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Unpack

from rocketstore.scanning import messages_in
from rocketstore.spark.decompression import NEEDED, with_plain_bodies
from rocketstore.spark.errors import HINTS, SparkFaceError, coded_errors
from rocketstore.spark.jobs.export_note import ExportNote, choice_of
from rocketstore.spark.jobs.parts import SPLIT_BYTES, Row, run_parts, whole_scan
from rocketstore.spark.jobs.reading import source_options
from rocketstore.spark.option_checks import bad_option
from rocketstore.spark.paths import local_path
from rocketstore.spark.schema import choose, scan_columns
from rocketstore.spark.source.plan import split_scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from rocketstore import Scan
    from rocketstore.spark.jobs.parquet_files import Target
    from rocketstore.spark.schema import Field
    from rocketstore.values import Wanted

__all__ = ["EXPORT_SCHEMA", "export", "export_part"]

EXPORT_SCHEMA = (
    "file string, topic string, day string, messages bigint, bytes bigint, "
    "first_physical_offset bigint, last_physical_offset bigint, "
    "first_timestamp timestamp, last_timestamp timestamp"
)
#: Scanned for the rows of the result, whatever columns are wanted.
ALWAYS = ("topic", "physical_offset", "size", "store_timestamp_ms")


def export(
    session: SparkSession,
    path: str | os.PathLike[str],
    target: str,
    *,
    columns: Sequence[str] | None = None,
    mode: Literal["error", "append", "continue"] = "error",
    decompress: bool = True,
    compression: str = "zstd",
    split_bytes: int = SPLIT_BYTES,
    **wanted: Unpack[Wanted],
) -> DataFrame:
    """Writes messages to `target/topic=<topic>/day=<date of the store time>/<offsets>.parquet`.
    Gives one row for each file: what is in it, from where to where.

    Files hold rows in the order of the log and statistics of all columns but body and properties,
    so that readers pass over what they do not want. They get their names when all of them are
    whole: a job that fails leaves nothing.

    Args:
        target: directory or URI (s3, gs, hdfs) that tasks and driver see under this name.
        columns: of the default view, without `topic`, which is in the directory's name; None: all.
        mode: "error": the target must be empty; "append": files are added; "continue": files are
            added for what came to the log since the last run with "continue", up to what is
            durable. That run must have chosen alike.
        decompress: bodies as producers gave them; False: as they are stored.
        compression: of Parquet: zstd, snappy, lz4, none.
        wanted: what `rocketstore.scan` chooses by: topics, topic_pattern, queues, tags, times.

    Raises:
        SparkFaceError: RS_TARGET_NOT_EMPTY; RS_UNKNOWN_COLUMN; RS_NO_STORE; RS_BAD_OPTION;
            RS_WRITE_FAILED. With "continue" RS_BAD_CHECKPOINT: the log is not the one that was
            exported; RS_DATA_LOST: a part was trimmed before it was exported.
    """
    if mode not in ("error", "append", "continue"):
        raise bad_option("mode", mode, "error, append or continue")
    chosen = None if columns is None else tuple(columns)
    fields = tuple(f for f in choose("rocketstore", chosen, frozenset()) if f.name != "topic")
    scanned = scan_columns(fields, (*ALWAYS, *NEEDED))
    place = target_of(target, compression)
    note: ExportNote | None = None
    with coded_errors("RS_READ_FAILED", place.uri):
        if mode == "continue":
            names = [field.name for field in fields]
            note = ExportNote.read(place, choice_of(source_options(wanted), names, decompress))
    after = {} if note is None else {"after": note.done, "durable": True}
    scan = whole_scan(path, columns=scanned, **after, **wanted)
    # Before anything is read: a log that is cut meanwhile has another record there afterwards.
    done = None if note is None else scan.bookmark
    parts = split_scan(scan, split_bytes)
    with coded_errors("RS_READ_FAILED", place.uri):
        full = mode == "error" and place.holds_files()
    if full:
        raise SparkFaceError(
            "RS_TARGET_NOT_EMPTY",
            f"target = {target!r}: files are there; another target, {HINTS['append']}",
        )
    unpack = decompress and any(field.column == "body" for field in fields)
    work = functools.partial(export_part, target=place, fields=fields, unpack=unpack)
    with coded_errors("RS_WRITE_FAILED", place.uri):
        try:
            rows = run_parts(session, parts, work)
            if note is None:
                rows = place.keep(rows)
            else:
                replace(note, pending=tuple(row[1] for row in rows)).write(place)
                rows = place.keep(rows, synced=True)
                replace(note, done=done).write(place)
        finally:
            place.clean()
    return session.createDataFrame(sorted(rows), EXPORT_SCHEMA)


def target_of(target: str, compression: str) -> Target:
    """Raises SparkFaceError: RS_BAD_OPTION."""
    from rocketstore.spark.jobs.parquet_files import COMPRESSIONS, Target

    if compression.lower() not in COMPRESSIONS:
        raise bad_option("compression", compression, " or ".join(COMPRESSIONS))
    place = Target(local_path("target", target) or target, uuid.uuid4().hex, compression)
    try:
        place.open()
    except (ValueError, NotImplementedError) as error:
        allowed = f"a directory, or a URI that pyarrow.fs knows ({error})"
        raise bad_option("target", target, allowed) from error
    return place


def export_part(
    scan: Scan, *, target: Target, fields: tuple[Field, ...], unpack: bool = False
) -> Iterator[Row]:
    """Writes the files of one part of the log; where each is, and its row."""
    from rocketstore.spark.jobs.parquet_files import PartFiles

    files = PartFiles(target, scan.begin_offset, scan.end_offset, fields)
    try:
        for columns, rows in messages_in(scan):
            whole = iter([(columns, rows)])
            for plain, wanted in with_plain_bodies(columns, rows) if unpack else whole:
                with coded_errors("RS_WRITE_FAILED", target.uri):
                    files.add(plain, columns.rows, wanted)
        with coded_errors("RS_WRITE_FAILED", target.uri):
            done = files.finish()
    finally:
        files.close()
    yield from done
