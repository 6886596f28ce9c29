"""`rocketstore.scan`: which part of which log is scanned, and what of it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from rocketstore.api.open import open_store
from rocketstore.archive.manifest import Manifest
from rocketstore.archive.object_store import ObjectStore, is_uri, shown_uri
from rocketstore.archive.segments import ArchivePart
from rocketstore.columns import column_names
from rocketstore.config.typed_options import OpenOptions
from rocketstore.errors import CorruptRecordError
from rocketstore.filters.sql import sql_filter
from rocketstore.log.read.named_topics import check_listed
from rocketstore.scanning.bookmark import Bookmark, check_bookmark
from rocketstore.scanning.scan import CHUNK_BYTES, OnDamage, Scan, Verify, checked_offset
from rocketstore.store import Store
from rocketstore.values.arguments import one_of
from rocketstore.values.public import public
from rocketstore.values.record_filter import Queues, RecordFilter
from rocketstore.values.timestamps import Timestamp

__all__ = ["scan"]

logger = logging.getLogger(__name__)

#: Default count of threads that read ahead; one processor that uses the chunks needs no more.
THREADS: Final = 4


@public
def scan(
    source: str | os.PathLike[str] | Store,
    *,
    columns: Iterable[str] | None = None,
    topics: str | Iterable[str] | None = None,
    topic_pattern: str | None = None,
    queues: Queues | None = None,
    system_topics: bool = False,
    tags: str | Iterable[str] | None = None,
    where: str | None = None,
    begin: Timestamp | None = None,
    end: Timestamp | None = None,
    begin_offset: int | None = None,
    end_offset: int | None = None,
    after: Bookmark | str | Mapping[str, object] | None = None,
    durable: bool = False,
    aligned: bool = False,
    verify: Verify = True,
    chunk_bytes: int = CHUNK_BYTES,
    on_damage: OnDamage = "raise",
    commit_log_dir: str = "",
    threads: int | None = None,
    must_exist: bool | None = False,
) -> Scan:
    """Reads messages of a store or an archive as columns, in the order of the log.

    The rows are the records of topics, also those that no consumer gets (docs/arrow.md). A scan
    takes no lock and changes nothing; it ends at what is visible now. An archive, which `ship`
    made, has a URI like "s3://bucket/prefix": `scan` reads its manifest now, its segments later.

    Args:
        source: The path of a store, an open store, or the URI of an archive.
        columns: Names of `rocketstore.columns.COLUMNS`. None: all, with copies of the bodies;
            "body_view" leaves the bodies in the file.
        topics, topic_pattern: Only records of these topics, or of topics that the regular
            expression matches as a whole (docs/api.md).
        queues: Only records of these queue ids; a mapping has the ids of each topic.
        system_topics: Whether records of topics that services use themselves come too, as those of
            delayed messages, of halves and of commit records. Without it they come where `topics`
            or `queues` names the topic.
        tags: Only records with one of these tags, or of "a || b"; inner batches come too.
        where: Only records whose properties match, as in "price > 10 AND region = 'eu'": RocketMQ's
            SQL92 (docs/filters.md); inner batches come too.
        begin, end: Only records stored at `begin` or later and before `end`: milliseconds since
            1970, or aware datetimes.
        begin_offset, end_offset: Only records that begin in this range of physical offsets. None:
            the begin of the log, and the visible end.
        after: Only records after this bookmark: `Scan.bookmark` of an earlier scan, or its JSON.
        durable: Whether the scan ends at what survives a power cut, instead of what is visible.
        aligned: Whether a record is known to begin at `begin_offset`. Else the scan finds one.
        verify: Checksums to test in every record: True both, "body", "record", or False none.
        chunk_bytes: Bytes of records in a chunk, about: 1 … 2^30.
        on_damage: "raise" raises CorruptRecordError; "skip" goes on at the next sound record and
            counts the loss in `report`.
        commit_log_dir: All directories of the log, separated by ",", where it has several.
        threads: Threads that read ahead, 1 … 64, after the first 16 MiB; chunks keep their order.
            None: one for each processor, 4 at most; 1 where bodies are copied.
        must_exist: Whether a topic of `topics`, or a name in `queues`, that has no queue is an
            error. Without it the log says so, once, and the scan has no rows of it. An archive
            does not know the topics of a segment that has very many. None: names are not looked
            at.

    Raises:
        InvalidTopicError: No topic can have such a name, and the store has none such.
        QueueNotFoundError: `must_exist`, and there is no such topic.
        FilterSyntaxError: `where` is no expression, with the position and a hint.
        ValueError, TypeError: An argument that has no meaning.
        MissingSegmentsError: Files of the log are missing, as where its disk is not mounted. With
            on_damage="skip" the scan reads what is left.
        CorruptRecordError: The archive has another history from an offset on, within the part that
            is scanned. With on_damage="skip" the scan reads both, and a line in the log names it.
        BookmarkError: `after` is of another store or another history of it, or lies after its end;
            a newer release made it, or it is none.
        OffsetOutOfRangeError: An offset outside the log, or `after` where the log was trimmed. With
            on_damage="skip" the part below its begin counts as lost instead.
        FileNotFoundError, NotADirectoryError, PermissionError: As the system says.
        ConfigError, ReadFailedError: A URI that pyarrow does not know, or one without an answer.
    """
    names = column_names(columns)
    wanted = RecordFilter.of(
        topics=topics,
        topic_pattern=topic_pattern,
        queues=queues,
        system_topics=system_topics,
        tags=tags,
        where=None if where is None else sql_filter(where).text,
        begin=begin,
        end=end,
    )
    one_of("must_exist", must_exist, (True, False, None))
    log, flushed, parted = _log_of(
        source, commit_log_dir, names, wanted, force=on_damage == "skip", must_exist=must_exist
    )
    if after is not None:
        if begin_offset is not None:
            raise ValueError(f"begin_offset = {begin_offset!r}: not together with after")
        begin_offset = check_bookmark(log, Bookmark.of(after))
        aligned = True
    one_of("durable", durable, (True, False))
    if durable and end_offset is None:
        end_offset = max(log.begin_offset, flushed, begin_offset or 0)
    bounds = _bounds_of(log, begin_offset, end_offset, aligned, on_damage)
    # A bookmark is of the history before its place.
    first, last = bounds["begin_offset"] - (after is not None), bounds["end_offset"]
    over = [place for place in parted if first < place < last]
    if over and on_damage == "raise":
        raise CorruptRecordError(over[0], "another history")
    if over:
        logger.warning("%s: at %s begins another history", log.path, over)
    ahead = _threads(names) if threads is None else threads
    return replace(
        log, **bounds, verify=verify, chunk_bytes=chunk_bytes, on_damage=on_damage, threads=ahead
    )._narrowed()


def _bounds_of(
    log: Scan, begin_offset: int | None, end_offset: int | None, aligned: bool, on_damage: OnDamage
) -> dict[str, Any]:
    """The bounds of a part of `log`, checked; what is known of them."""
    least, most = log.begin_offset, log.end_offset
    first, last = least, most
    if begin_offset is not None:
        low = least if on_damage == "raise" else 0
        first = checked_offset("begin_offset", begin_offset, low, most)
    if end_offset is not None:
        last = checked_offset("end_offset", end_offset, first, most)
    return {
        "begin_offset": first,
        "end_offset": last,
        "aligned": aligned or first <= least,
        "whole": last == most,
    }


def _threads(columns: tuple[str, ...]) -> int:
    return 1 if "body" in columns else min(THREADS, os.cpu_count() or 1)


def _log_of(
    source: str | os.PathLike[str] | Store,
    commit_log_dir: str,
    columns: tuple[str, ...],
    wanted: RecordFilter,
    *,
    force: bool,
    must_exist: bool | None,
) -> tuple[Scan, int, tuple[int, ...]]:
    """A scan of the whole log of a store or an archive, where it is durable, and where an archive
    has another history. `force`: also where files are missing. `must_exist`: not without the topics that are named."""
    named = wanted.named if must_exist is not None else frozenset()
    archive: ArchivePart | None = None
    directories: tuple[str, ...] = ()
    parted: tuple[int, ...] = ()
    if is_uri(source):
        uri = str(source)
        path = shown_uri(uri)
        if commit_log_dir:
            raise ValueError(f"commit_log_dir = {commit_log_dir!r}: not with {path}")
        manifest = ObjectStore(uri).manifest()
        archive = ArchivePart.of(uri, manifest, wanted)
        _check_archive(path, manifest, named, must_exist=must_exist is True)
        begin, end = manifest.begin_offset, manifest.end_offset
        flushed, parted = end, manifest.parted
    else:
        options: OpenOptions = {"index_enabled": False, "commit_log_dir": commit_log_dir}
        with contextlib.ExitStack() as stack:
            if isinstance(source, Store):
                store = source
            else:
                store = stack.enter_context(open_store(source, "r", force=force, **options))
            path, directories, begin, end, flushed = _bounds(store)
            store._open().check_topics(named, must_exist=must_exist is True)
    log = Scan(
        path=path,
        begin_offset=begin,
        end_offset=end,
        limit_offset=end,
        columns=columns,
        filter=wanted,
        log_directories=directories,
        archive=archive,
    )
    return log, flushed, parted


def _bounds(store: Store) -> tuple[str, tuple[str, ...], int, int, int]:
    """Path, log directories, begin, visible and durable end of a store."""
    layout, begin, end = store._open().log_bounds()
    flushed = store.flushed_offset
    end = max(begin, end)
    directories = tuple(map(str, layout.log_directories))
    return str(layout.root), directories, begin, end, min(end, flushed)


def _check_archive(
    path: str, manifest: Manifest, topics: Collection[str], *, must_exist: bool
) -> None:
    """Looks at the topics that are named, where each segment lists those that it has."""
    there: set[str] = set()
    for segment in manifest.segments:
        if segment.topics is None:
            return
        there.update(segment.topics)
    any_name = any(segment.foreign for segment in manifest.segments)
    check_listed(path, topics, there, must_exist=must_exist, any_name=any_name)
