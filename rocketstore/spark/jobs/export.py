"""Messages as Parquet, by topic and day, written where the log is read."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from rocketstore import Bookmark, BookmarkError
from rocketstore.archive import ObjectStore, is_uri
from rocketstore.scanning import messages_in
from rocketstore.spark.decompression import NEEDED, with_plain_bodies
from rocketstore.spark.errors import HINTS, SparkFaceError, bad_option, coded_errors
from rocketstore.spark.jobs.reading import SPLIT_BYTES, Row, run_parts, source_options, whole_scan
from rocketstore.spark.schema import Field, choose, scan_columns
from rocketstore.spark.source.plan import split_scan
from rocketstore.spark.stores import local_path
from rocketstore.values import LIMITS, parse_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketstore import Scan
    from rocketstore.spark.jobs.parquet_files import Target
    from rocketstore.values import Wanted

__all__ = ["EXPORT_SCHEMA", "NOTE_NAME", "ExportNote", "choice_of", "export", "export_part"]

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


#: Readers of Parquet pass over names that begin so.
NOTE_NAME: Final = "_export.json"
VERSION: Final = 1
NOTE_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True)
class ExportNote:
    """How far an export has come, noted in its target: the next one goes on there. `done` None:
    nothing is exported yet.

    `_export.json` has the bookmark of the log up to which all is exported, and what was chosen.
    Before files get their names it lists them as pending; after that it has the new bookmark. A run
    that finds pending files removes them: a run that was killed may have named some, and their
    messages come again.
    """

    chosen: Mapping[str, Any]
    done: Bookmark | None = None
    #: Files, relative to the target, that a run is about to name.
    pending: tuple[str, ...] = ()

    @classmethod
    def read(cls, place: Target, chosen: Mapping[str, Any]) -> ExportNote:
        """The note of a target, once what a killed run has named is removed.

        Raises:
            SparkFaceError: RS_TARGET_NOT_EMPTY: files and no note; RS_BAD_CHECKPOINT: it is none;
                RS_BAD_OPTION: other messages or columns were chosen.
        """
        objects = _objects(place)
        try:
            file = objects.open(NOTE_NAME)
        except FileNotFoundError:
            if place.holds_files():
                text = f"target = {place.uri!r}: files are there, and no {NOTE_NAME} says of what"
                raise SparkFaceError("RS_TARGET_NOT_EMPTY", f"{text}; another target") from None
            return cls(chosen)
        with contextlib.closing(file):
            data = file.read(0, min(file.size(), NOTE_BYTES_MAX))
        found = cls._parse(data, objects.object_name(NOTE_NAME))
        if found.chosen != chosen:
            other = [name for name in chosen if found.chosen.get(name) != chosen[name]]
            was = ", ".join(f"{name} = {found.chosen.get(name)!r}" for name in other)
            raise bad_option("mode", "continue", f"the runs before had {was}; another target")
        files, root = place.open()
        for name in found.pending:
            with contextlib.suppress(FileNotFoundError):
                files.delete_file(f"{root}/{name}")
        return replace(found, pending=())

    @classmethod
    def _parse(cls, data: bytes, where: str) -> ExportNote:
        try:
            found: Any = parse_json(data, LIMITS["spark"])
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']!r}: {VERSION}")
            done = None if found["done"] is None else Bookmark.of(found["done"])
            pending = tuple(map(_relative, found["pending"]))
            return cls(dict(found["chosen"]), done, pending)
        except (ValueError, TypeError, KeyError, BookmarkError) as error:
            raise SparkFaceError(
                "RS_BAD_CHECKPOINT", f"{where}: {error}; another target"
            ) from error

    def write(self, place: Target) -> None:
        """Replaces the note of a target; it is on the disk when this returns."""
        done = None if self.done is None else asdict(self.done)
        document = {
            "version": VERSION,
            "chosen": self.chosen,
            "done": done,
            "pending": self.pending,
        }
        _objects(place).put(NOTE_NAME, [json.dumps(document, indent=1).encode()])


def choice_of(
    options: Mapping[str, str], columns: Iterable[str], decompress: bool
) -> dict[str, Any]:
    """What every run of one target has to choose alike."""
    return {"messages": dict(options), "columns": list(columns), "decompress": decompress}


def _objects(place: Target) -> ObjectStore:
    return ObjectStore(place.uri if is_uri(place.uri) else Path(place.uri).absolute().as_uri())


def _relative(name: object) -> str:
    """The name of a Parquet file below the target, and nothing else that could be removed."""
    if not isinstance(name, str) or not name.startswith("topic=") or not name.endswith(".parquet"):
        raise ValueError(f"{name!r} is no file of an export")
    if ".." in name.split("/") or os.path.isabs(name):
        raise ValueError(f"{name!r} is no file of an export")
    return name
