"""`rocketstore.scan`: which part of which log is scanned, and what of it."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Iterable
from typing import Final, Unpack

from rocketstore.api.open import open_store
from rocketstore.archive.object_store import Place, is_uri, shown
from rocketstore.archive.segments import ArchivePart
from rocketstore.columns import column_names
from rocketstore.errors import OffsetOutOfRangeError
from rocketstore.scanning.scan import CHUNK_BYTES, OnDamage, Scan, Verify
from rocketstore.store import Store
from rocketstore.store_info import log_bounds
from rocketstore.values.arguments import whole_number
from rocketstore.values.record_filter import RecordFilter, Wanted

__all__ = ["scan"]

#: Default count of threads that read ahead; one processor that uses the chunks needs no more.
THREADS: Final = 4


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
        layout, begin, end = log_bounds(source)
    else:
        with open_store(source, "r", index_enabled=False, commit_log_dir=commit_log_dir) as store:
            layout, begin, end = log_bounds(store)
    return str(layout.root), tuple(map(str, layout.log_directories)), begin, max(begin, end)
