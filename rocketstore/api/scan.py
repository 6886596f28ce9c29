"""`rocketstore.scan`: which part of which log is scanned, and what of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final, Never

from rocketstore.api.open import open_store
from rocketstore.archive.object_store import ObjectStore, is_uri, shown_uri
from rocketstore.archive.segments import ArchivePart
from rocketstore.columns import column_names
from rocketstore.errors import OffsetOutOfRangeError
from rocketstore.scanning.scan import CHUNK_BYTES, OnDamage, Scan, Verify
from rocketstore.store import Store
from rocketstore.store_info import log_bounds
from rocketstore.values.arguments import whole_number
from rocketstore.values.record_filter import Queues, RecordFilter
from rocketstore.values.renamed import refuse_arguments
from rocketstore.values.timestamps import Timestamp

__all__ = ["scan"]

#: Default count of threads that read ahead; one processor that uses the chunks needs no more.
THREADS: Final = 4


def scan(
    source: str | os.PathLike[str] | Store,
    *,
    columns: Iterable[str] | None = None,
    topics: str | Iterable[str] | None = None,
    topic_pattern: str | None = None,
    queues: Queues | None = None,
    tags: str | Iterable[str] | None = None,
    begin: Timestamp | None = None,
    end: Timestamp | None = None,
    begin_offset: int | None = None,
    end_offset: int | None = None,
    aligned: bool = False,
    verify: Verify = True,
    chunk_bytes: int = CHUNK_BYTES,
    on_damage: OnDamage = "raise",
    commit_log_dir: str = "",
    threads: int | None = None,
    **unknown: Never,
) -> Scan:
    """Reads messages of a store or an archive as columns, in the order of the log.

    The rows are the records of the log, also those that no consumer gets (docs/arrow.md). A scan
    takes no lock and changes nothing. It ends at what is visible now. The archive that `ship` made
    has a URI such as "s3://bucket/prefix" or "file:///directory"; `scan` reads its manifest now and
    its segments later.

    Args:
        source: The path of a store, an open store, or the URI of an archive.
        columns: Names of `rocketstore.columns.COLUMNS`. None: all, with copies of the bodies;
            "body_view" leaves the bodies in the file.
        topics: Only records of this topic, or of these.
        topic_pattern: Only records of topics that this regular expression matches as a whole.
        queues: Only records of this queue id, of these, or of those that a mapping has for their
            topic.
        tags: Only records with this tag, one of these, or one of "a || b". Inner batches come too:
            their messages have tags of their own.
        begin: Only records stored at this time or later; milliseconds since 1970 or an aware
            datetime.
        end: Only records stored before this time.
        begin_offset: Only records that begin at this physical offset or later. The end of a record
            that began before it is skipped, unless `aligned` says that there is none. None: the
            begin of the log.
        end_offset: Only records that begin before this physical offset. None: the visible end.
        aligned: Whether a record is known to begin at `begin_offset`.
        verify: Checksums to test in every record: True both, "body", "record", or False none.
        chunk_bytes: Bytes of records in a chunk, about: 1 … 2^30.
        on_damage: "raise" raises CorruptRecordError. "skip" goes on at the next sound record and
            counts what is lost in `report`.
        commit_log_dir: All directories of the log, separated by ",", where it has several.
        threads: Threads that read ahead, 1 … 64; chunks come in order all the same. They start
            after the first 16 MiB and take 16 MiB each. None: one for each processor, 4 at most; 1
            where bodies are copied, which needs fresh memory more than a processor. Archives and
            parts of `split` use one.

    Raises:
        ValueError, TypeError: An argument that has no meaning, or a keyword that `scan` does not
            have.
        OffsetOutOfRangeError: An offset outside the log. With on_damage="skip" the part below the
            begin of the log counts as lost instead.
        FileNotFoundError, NotADirectoryError, PermissionError: As the system says.
        ConfigError, ReadFailedError: A URI that pyarrow does not know, or a place that does not
            answer.
    """
    if unknown:
        refuse_arguments(scan, unknown)
    names = column_names(columns)
    wanted = RecordFilter.of(
        topics=topics,
        topic_pattern=topic_pattern,
        queues=queues,
        tags=tags,
        begin=begin,
        end=end,
    )
    path, directories, least, most, archive = _place_of(source, commit_log_dir, wanted)
    first = least if begin_offset is None else whole_number("begin_offset", begin_offset)
    last = most if end_offset is None else whole_number("end_offset", end_offset)
    _check_range(first, last, least if on_damage == "raise" else 0, most)
    found = Scan(
        path=path,
        begin_offset=first,
        end_offset=last,
        columns=names,
        filter=wanted,
        verify=verify,
        chunk_bytes=chunk_bytes,
        on_damage=on_damage,
        limit_offset=most,
        aligned=aligned or first <= least,
        whole=last == most,
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
        raise ValueError(f"commit_log_dir = {commit_log_dir!r}: not with {shown_uri(uri)}")
    manifest = ObjectStore(uri).manifest()
    part = ArchivePart.of(uri, manifest, wanted)
    return shown_uri(uri), (), manifest.begin_offset, manifest.end_offset, part


def _bounds(
    source: str | os.PathLike[str] | Store, commit_log_dir: str
) -> tuple[str, tuple[str, ...], int, int]:
    """Path, log directories, begin and visible end of a store."""
    if isinstance(source, Store):
        layout, begin, end = log_bounds(source)
    else:
        with open_store(source, "r", index_enabled=False, commit_log_dir=commit_log_dir) as store:
            layout, begin, end = log_bounds(store)
    return str(layout.root), tuple(map(str, layout.log_directories)), begin, max(begin, end)
