"""Makes a damaged log safe for RocketMQ, which deletes everything behind the first bad byte (D-26).

A damaged range becomes records of exactly its length that nobody is given: rolled back, with a body of
zeros; and a blank, where it reaches the end of its file. All other records stay where they are. Units of
queues that point into it become pre-blanks, so that no queue offset changes, and the index is made anew.
What was there is copied to quarantine before.
"""

from __future__ import annotations

import bisect
import itertools
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy

from rocketstore._native import queue_file, syscalls
from rocketstore._native.codec import encode_record
from rocketstore._native.mapped_file import MappedFile
from rocketstore.column_scan import Scan, scan
from rocketstore.log.column_walk import LogFiles
from rocketstore.log.quarantine import keep_copy, pieces_of
from rocketstore.log.queue_units import PRE_BLANK_SIZE, UNIT_SIZE, list_files
from rocketstore.opening import open_store
from rocketstore.tools.verify_log import REPAIR_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rocketstore.log.layout import StoreLayout
    from rocketstore.store import Store
    from rocketstore.tools.findings import Progress

    Offsets = NDArray[numpy.int64]

__all__ = ["Mended", "RepairReport", "repair"]

ROLLED_BACK: Final = 0xC
BLANK: Final = struct.Struct(">iI")
BLANK_MAGIC: Final = 0xCBD43194
#: Of a record without body, with this topic.
RECORD_BYTES_MIN: Final = 92
RECORD_BYTES_MAX: Final = 1 << 20
UNITS_STEP: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Mended:
    """One damaged range. `how`: "record" or "blank", or why it stays as it is."""

    start: int
    end: int
    reason: str
    how: str

    @property
    def done(self) -> bool:
        return self.how in ("record", "blank")

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}): {self.reason}: {self.how}"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What `repair` found and did. `units` of queues pointed into damage; with `dry_run` nothing was
    changed."""

    path: str
    dry_run: bool
    ranges: tuple[Mended, ...]
    units: int
    quarantine: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no damage is left."""
        return not self.ranges or (not self.dry_run and all(one.done for one in self.ranges))

    def __str__(self) -> str:
        damaged = sum(one.end - one.start for one in self.ranges)
        left = sum(not one.done for one in self.ranges)
        what = "would be mended" if self.dry_run else "mended"
        return (
            f"{self.path}: {len(self.ranges)} damaged ranges with {damaged} bytes, "
            f"{len(self.ranges) - left} {what}, {left} cannot be; {self.units} queue units"
        )


def repair(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> RepairReport:
    """Reads every record, and mends what no record can be believed in.

    The store is recovered first where it was not stopped cleanly, is locked meanwhile, and is stopped
    cleanly afterwards. Killed half-way it can be run again.

    Args:
        dry_run: only says what would be done; no lock, no change.
        force: go on although segments of the log are missing, as for `rocketstore.open`.
        progress: called with (what, bytes done, bytes in all).
        options: further settings of `rocketstore.open`, such as `commit_log_dir`.

    Raises:
        StoreLockedError: somebody has the store open for writing.
        DiskFullError: no room for the copies; nothing was changed then.
        MissingSegmentsError, OSError: as `rocketstore.open`.
    """
    if dry_run:
        with open_store(path, "r", **options) as store:
            found = _damaged(store, progress)
            units = _units_into(store, [one for one in found if one.fits], write=False)
        return RepairReport(os.fspath(path), True, tuple(one.told for one in found), units, ())
    done: list[_Range] = []
    kept: list[str] = []
    units = 0
    with open_store(path, "r+", force=force, **options) as store:
        while True:
            found = _damaged(store, progress)
            fitting = [one for one in found if one.fits]
            if not fitting:
                break
            kept += _keep(store, fitting)
            units += _units_into(store, fitting, write=True)
            _mend(store, fitting)
            done += fitting
        layout, _, _ = store._log_bounds()
    if done:
        _make_index_again(path, layout, options)
    ranges = sorted([*done, *found], key=lambda one: one.start)
    told = tuple(one.told for one in ranges)
    return RepairReport(os.fspath(path), False, told, units, tuple(dict.fromkeys(kept)))


@dataclass(frozen=True, slots=True)
class _Range:
    """A damaged range within one file, that file's end, and the store time of a neighbour."""

    start: int
    end: int
    reason: str
    file_end: int
    time_ms: int

    @property
    def how(self) -> str:
        size = self.end - self.start
        if self.reason == "missing segment":
            return "the file is missing: restore it"
        room = size - self.blank_size
        if room >= RECORD_BYTES_MIN:
            return "record"
        if room >= 0 and self.blank_size:
            return "blank"
        return f"{size} bytes are shorter than any record"

    @property
    def blank_size(self) -> int:
        """A file ends with a blank."""
        return BLANK.size if self.end == self.file_end else 0

    @property
    def fits(self) -> bool:
        return self.how in ("record", "blank")

    @property
    def told(self) -> Mended:
        return Mended(self.start, self.end, self.reason, self.how)


# ---- what is damaged ----


def _damaged(store: Store, progress: Progress | None) -> list[_Range]:
    """Where no record can be believed, file by file, in order; the first ten thousand places."""
    walk = scan(store, columns=("store_timestamp_ms",), verify=True, on_damage="skip")
    ends, times = [], []  # of each chunk: where it ends, the store time of its last record
    for chunk in walk:
        ends.append(chunk.end_offset)
        times.append(int(chunk["store_timestamp_ms"][-1]))
        if progress is not None:
            progress(
                "log", chunk.end_offset - walk.begin_offset, walk.end_offset - walk.begin_offset
            )
    size = store.config.commit_log_file_size_bytes
    lost = [(damage.start, damage.end, damage.reason) for damage in walk.report.damage]
    lost += _without_blank(store, walk, ends, [start for start, _, _ in lost])
    found = []
    for start, last, reason in sorted(lost):
        # A chunk ends where damage begins: the record in front of it, or the first one behind it.
        near = max(0, bisect.bisect_right(ends, start) - 1)
        time_ms = times[near] if times else 0
        while start < last:
            file_end = (start // size + 1) * size
            end = min(last, file_end)
            found.append(_Range(start, end, reason, file_end, time_ms))
            start = end
    return found


def _without_blank(
    store: Store, walk: Scan, ends: list[int], damaged: list[int]
) -> Iterator[tuple[int, int, str]]:
    """Files whose records end before they do, with nothing there that says so: a reader of ours goes on in
    the next file, RocketMQ ends its log."""
    _, files = _files(store)
    try:
        for start in files.starts():
            file_end = start + files.size
            if start < walk.begin_offset or file_end > walk.end_offset:
                continue
            number = bisect.bisect_right(ends, file_end) - 1
            used = max(start, ends[number]) if number >= 0 else start
            file = files.at(start)
            if file is None or used == file_end or used in damaged:
                continue
            rest = file_end - used
            blank = BLANK.pack(rest, BLANK_MAGIC)[:rest]
            if file.read(used - start, min(rest, BLANK.size)) != blank:
                yield used, file_end, "no blank"
    finally:
        files.close()


# ---- mending ----


def _keep(store: Store, ranges: Sequence[_Range]) -> list[str]:
    """Copies of what is about to be overwritten, durable."""
    layout, files = _files(store)
    kept = []
    try:
        for one in ranges:
            file = files.at(one.start)
            pieces = [] if file is None else pieces_of([file], one.start, one.end)
            kept.append(keep_copy(layout, pieces, f"repair: {one.reason}", {}))
    finally:
        files.close()
    return [path for path in kept if path is not None]


def _mend(store: Store, ranges: Sequence[_Range]) -> None:
    """Overwrites the ranges, and syncs."""
    _, files = _files(store)
    try:
        for _, of_file in itertools.groupby(ranges, key=lambda one: one.file_end):
            together = list(of_file)
            file = files.at(together[0].start)
            if file is None:
                raise FileNotFoundError(f"the segment with {together[0].start} is gone")
            fd = syscalls.open(file.path, os.O_RDWR)
            try:
                for one in together:
                    syscalls.pwrite(fd, _replacement(one), one.start - file.start_offset)
                syscalls.fdatasync(fd)
            finally:
                syscalls.close(fd)
    finally:
        files.close()


def _replacement(one: _Range) -> bytes:
    """What is written over a range: records of its length together, a blank at the end of its file."""
    if one.how == "blank":
        return BLANK.pack(one.end - one.start, BLANK_MAGIC)
    records, offset, end = [], one.start, one.end - one.blank_size
    while offset < end:
        size = end - offset
        if size > RECORD_BYTES_MAX:
            size = min(RECORD_BYTES_MAX, size - RECORD_BYTES_MIN)
        records.append(
            encode_record(
                topic=REPAIR_TOPIC,
                body=bytes(size - RECORD_BYTES_MIN),
                sys_flag=ROLLED_BACK,
                physical_offset=offset,
                born_timestamp_ms=one.time_ms,
                store_timestamp_ms=one.time_ms,
            )
        )
        offset += size
    if one.blank_size:
        records.append(BLANK.pack(one.blank_size, BLANK_MAGIC))
    return b"".join(records)


def _files(store: Store) -> tuple[StoreLayout, LogFiles]:
    layout, _, _ = store._log_bounds()
    return layout, LogFiles(layout)


# ---- queues and index ----


def _units_into(store: Store, ranges: Sequence[_Range], *, write: bool) -> int:
    """How many units of all queues point into the ranges; `write`: they become pre-blanks."""
    if not ranges:
        return 0
    layout, _, _ = store._log_bounds()
    starts = numpy.array([one.start for one in ranges])
    ends = numpy.array([one.end for one in ranges])
    units = 0
    for directory in sorted(layout.consume_queue.glob("*/*")):
        for start, size in list_files(directory):
            if size and size % UNIT_SIZE == 0:
                name = str(directory / f"{start:020d}")
                file = MappedFile.open(name, start, size, "write" if write else "read")
                try:
                    units += _units_of(file, starts, ends, write=write)
                finally:
                    file.close()
    return units


def _units_of(file: MappedFile, starts: Offsets, ends: Offsets, *, write: bool) -> int:
    units, changed = file.size // UNIT_SIZE, []
    for first in range(0, units, UNITS_STEP):
        found = queue_file.units_array(file, first, min(UNITS_STEP, units - first))
        offsets = found["physical_offset"].astype("i8")
        sizes = found["size"].astype("i8")
        near = numpy.searchsorted(starts, offsets, side="right") - 1
        hit = (near >= 0) & (offsets < ends[near]) & (sizes > 0) & (sizes != PRE_BLANK_SIZE)
        changed += (numpy.flatnonzero(hit) + first).tolist()
    if write and changed:
        for unit in changed:
            queue_file.write_unit(file, unit, *queue_file.PRE_BLANK)
        file.sync(changed[0] * UNIT_SIZE, (changed[-1] + 1) * UNIT_SIZE)
    return len(changed)


def _make_index_again(
    path: str | os.PathLike[str], layout: StoreLayout, options: Mapping[str, Any]
) -> None:
    """Entries of the index may point to what is not there any more: without files it is made anew."""
    names = sorted(os.listdir(layout.index)) if layout.index.is_dir() else []
    for name in names:
        syscalls.unlink(os.fspath(layout.index / name))
    if names:
        syscalls.sync_directory(os.fspath(layout.index))
        open_store(path, "r+", **options).close()
