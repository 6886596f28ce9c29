"""Makes a damaged log safe for RocketMQ, which deletes everything after the first bad byte (D-26).

Filler records take the place of a damaged range, of exactly its length together; and a blank, where
the range reaches the end of its file. All other records stay where they are. Queue units that point
into the range become pre-blanks, so that no queue offset changes, or point to a filler record where
RocketMQ would lose more after a pre-blank (format 6.3). The index is rebuilt. What was there is
copied to quarantine before.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Unpack

from rocketstore._native.format.codec import encode_record
from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.api.open import open_store
from rocketstore.config.typed_options import StoreOptions
from rocketstore.errors import MissingSegmentsError, ReadFailedError, StoreLockedError
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.listing import short_files
from rocketstore.log.layout.log_dirs import list_log
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.column_reader import MISSING_SEGMENT, LogFiles
from rocketstore.log.recovery.quarantine import Lost, keep_ranges, pieces_of
from rocketstore.log.recovery.report import (
    LostMessages,
    OffsetSetBack,
    RecoveryReport,
    UnplacedMessages,
)
from rocketstore.store import Store
from rocketstore.tools._repair.damage import (
    DamagedRange,
    blank_head,
    damaged_ranges,
    log_files,
    with_pointed_fillers,
)
from rocketstore.tools._repair.missing_segments import check_places, make_missing
from rocketstore.tools._repair.pre_blanks import find_pre_blanks, point_them, with_ends
from rocketstore.tools._repair.units import PointedFiller, change_units, messages_of, units_into
from rocketstore.tools.filler_records import POINTED_FLAG, RECORD_BYTES_MIN, REPAIR_TOPIC
from rocketstore.values.arguments import Progress
from rocketstore.values.plural import counted
from rocketstore.values.system_flags import ROLLED_BACK

logger = logging.getLogger(__name__)

__all__ = ["Mended", "RepairReport", "repair"]

RECORD_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Mended:
    """One damaged range. `how`: "record" or "blank", or why it stays as it is."""

    start: int
    end: int
    reason: str
    how: str

    @classmethod
    def of(cls, one: DamagedRange) -> Mended:
        return cls(one.start, one.end, one.reason, one.how)

    @property
    def done(self) -> bool:
        return self.how in ("record", "blank")

    def __str__(self) -> str:
        how = f"filler {self.how}" if self.how == "record" else self.how
        return f"[{self.start}, {self.end}): {self.reason}: {how}"


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What `repair` found and did. `units` of queues pointed into damage, or were pre-blanks that
    lead RocketMQ astray; with `dry_run` nothing was changed."""

    path: str
    dry_run: bool
    ranges: tuple[Mended, ...]
    units: int
    quarantine: tuple[str, ...]
    #: What the recovery before cut off the end of the log, physical offsets.
    cut: tuple[int, int] | None = None
    #: Messages that the queues knew: of that cut, and of the damaged ranges.
    lost_messages: tuple[LostMessages, ...] = ()
    offsets_set_back: tuple[OffsetSetBack, ...] = ()
    #: What that recovery says besides: files lengthened or shortened, sizes that were chosen.
    notes: tuple[str, ...] = ()
    #: As in `RecoveryReport`: messages that have no place in their queue.
    unplaced_messages: tuple[UnplacedMessages, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no damage is left."""
        return not self.ranges or (not self.dry_run and all(one.done for one in self.ranges))

    @property
    def lost(self) -> bool:
        """Whether the recovery before the repair cut messages, or set offsets of groups back; or
        would; or whether messages have no place in their queue."""
        cut = any(one.why != "damaged" for one in self.lost_messages)
        return cut or bool(self.offsets_set_back or self.unplaced_messages)

    def of_recovery(self) -> list[str]:
        """What the recovery did, and which messages are lost, a line each."""
        lines = [f"recovery cut off: [{self.cut[0]}, {self.cut[1]})"] if self.cut else []
        return [
            *lines, *map(str, self.lost_messages), *map(str, self.offsets_set_back), *self.notes,
            *(f"no place in its queue: {one}" for one in self.unplaced_messages),
        ]  # fmt: skip

    def __str__(self) -> str:
        damaged = sum(one.end - one.start for one in self.ranges)
        left = sum(not one.done for one in self.ranges)
        what = "would be mended" if self.dry_run else "mended"
        return (
            f"{self.path}: {counted(len(self.ranges), 'damaged range')} with "
            f"{counted(damaged, 'byte')}, {len(self.ranges) - left} {what}, {left} cannot be; "
            f"{counted(self.units, 'queue unit')}"
        )


def repair(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    force: bool = False,
    fill_missing: bool = False,
    progress: Progress | None = None,
    **options: Unpack[StoreOptions],
) -> RepairReport:
    """Reads every record, and repairs each range in which no record can be believed.

    The store is recovered first where it was not stopped cleanly, is locked meanwhile, and is
    stopped cleanly afterwards. Killed half-way it can be run again.

    Args:
        dry_run: only says what would be done with the other arguments, segments missing at the end
            aside; no lock, no change.
        force: go on although segments of the log are missing, as for `rocketstore.open`.
        fill_missing: segments that are missing between others are lost for good: files of their
            size take their place, and what pointed into them is repaired. Without it such a segment
            is named, and can still be restored. Where the log lacks its end, too, that takes
            `force`.
        progress: called with (what, bytes done, bytes in all).
        options: further settings of `rocketstore.open`, such as `commit_log_dir`.

    Raises:
        StoreLockedError: a process has the store open for writing.
        DiskFullError: no room for the copies; nothing was changed then.
        ReadFailedError: the disk does not give back what was written.
        FileNotFoundError: a segment is removed meanwhile; where that is noticed before, nothing was
            changed.
        MissingSegmentsError, OSError: as `rocketstore.open`.
    """
    if dry_run:
        return _look(path, force, fill_missing, progress, options)
    done: list[DamagedRange] = []
    kept: list[str] = []
    hits: list[LostMessages] = []
    units = 0
    with _opened(path, force, fill_missing, options) as store:
        recovery = store.recovery
        while True:
            found = damaged_ranges(store, progress)
            fitting = [one for one in found if one.fits]
            if not fitting:
                break
            again = {(one.start, one.end) for one in done} & {
                (one.start, one.end) for one in fitting
            }
            if again:
                start, end = min(again)
                text = f"[{start}, {end}) of the log does not hold what was written there"
                raise ReadFailedError(f"{os.fspath(path)}: {text}: look at the disk")
            kept += _keep(store, fitting)
            if not done:
                _drop_index(store)
            fitting = with_pointed_fillers(store, fitting)
            hits += messages_of(units_into(store, fitting))
            units += change_units(store, fitting)
            _mend(store, fitting)
            done += fitting
        units += _mend_ends(store, kept)
    if done:
        recovery = _make_index_again(recovery, path, {**options, "force": force})
    ranges = sorted([*done, *found], key=lambda one: one.start)
    mended = tuple(Mended.of(one) for one in ranges)
    kept = [*recovery.quarantine, *kept]
    made = RepairReport(os.fspath(path), False, mended, units, tuple(dict.fromkeys(kept)))
    return _with_recovery(made, recovery, hits)


def _opened(
    path: str | os.PathLike[str], force: bool, fill_missing: bool, options: Mapping[str, Any]
) -> Store:
    """For writing, without delivery; not by `force` where only segments between others are missing:
    the rest must be all there."""
    options = {**options, "deliver_delayed": False}
    if fill_missing:
        try:
            return open_store(path, "r+", check_queues=True, **options)
        except MissingSegmentsError:
            make_missing(StoreLayout(Path(path)))
    return open_store(path, "r+", force=force, check_queues=True, **options)


def _look(
    path: str | os.PathLike[str],
    force: bool,
    fill_missing: bool,
    progress: Progress | None,
    options: Mapping[str, Any],
) -> RepairReport:
    """What would be done."""
    if fill_missing:
        check_places(StoreLayout(Path(path)))
    with open_store(path, "r", force=True, check_queues=True, **options) as store:
        found = damaged_ranges(store, progress)
        cut = set() if force or fill_missing else _ends_cut_off(store)
        looked = []
        for one in found:
            how = one.how
            if one.file_end in cut:
                how = "the file is too short: restore it"
            elif fill_missing and one.reason == MISSING_SEGMENT:
                how = "record"
            looked.append(Mended(one.start, one.end, one.reason, how))
        fitting = [one for one, mended in zip(found, looked, strict=True) if mended.done]
        found_units = list(units_into(store, fitting))
        hits = messages_of(found_units)
        units = sum(len(hit.numbers) for hit in found_units)
        units += sum(len(one.pointed_fillers) for one in with_ends(store, find_pre_blanks(store)))
        recovery = store.recovery
    made = RepairReport(os.fspath(path), True, tuple(looked), units, ())
    filled = ("segment missing",) if fill_missing else ()
    return _with_recovery(made, recovery, hits, filled)


def _with_recovery(
    report: RepairReport,
    recovery: RecoveryReport,
    hits: Sequence[LostMessages],
    filled: Sequence[str] = (),
) -> RepairReport:
    """With what the open's own recovery did. Damage is counted by the repair alone."""
    lost = [one for one in recovery.lost_messages if one.why not in ("damaged", *filled)]
    return replace(
        report,
        cut=recovery.cut,
        lost_messages=(*lost, *hits),
        offsets_set_back=recovery.offsets_set_back,
        notes=recovery.notes,
        unplaced_messages=recovery.unplaced_messages,
    )


def _ends_cut_off(store: Store) -> set[int]:
    """Where files end that are too short although others follow: an open for writing is refused."""
    layout, _, _ = store._open().log_bounds()
    size = store.config.commit_log_file_size_bytes
    return {start + size for start, _, _ in short_files(list_log(layout), size)}


# ---- mending ----


def _mend_ends(store: Store, kept: list[str]) -> int:
    """Points pre-blanks that mislead RocketMQ at filler records; how many units. Adds copies to
    `kept`."""
    ranges = with_ends(store, find_pre_blanks(store))
    kept += _keep(store, ranges)
    _mend(store, ranges)
    for one in ranges:  # after the records: until then a run of this finds them again
        point_them(one.pointed_fillers)
    return sum(len(one.pointed_fillers) for one in ranges)


def _keep(store: Store, ranges: Sequence[DamagedRange]) -> list[str]:
    """Copies of what is about to be overwritten, durable. Nothing is copied where a file is
    gone."""
    layout, files = log_files(store)
    kept: list[str] = []
    try:
        for one in ranges:
            _file_of(files, one)
        for _, of_file in itertools.groupby(
            ranges, key=attrgetter("file_end")
        ):  # one is open at a time
            lost = [
                Lost(pieces_of([_file_of(files, one)], one.start, one.end), one.reason, {})
                for one in of_file
            ]
            kept += keep_ranges(layout, lost, "repair")
        return kept
    finally:
        files.close()


def _file_of(files: LogFiles, one: DamagedRange) -> MappedFile:
    file = files.at(one.start)
    if file is None:
        raise FileNotFoundError(f"the segment with {one.start} is gone: restore it")
    return file


def _mend(store: Store, ranges: Sequence[DamagedRange]) -> None:
    """Overwrites the ranges, and syncs."""
    _, files = log_files(store)
    try:
        for _, of_file in itertools.groupby(ranges, key=lambda one: one.file_end):
            together = list(of_file)
            file = _file_of(files, together[0])
            fd = syscalls.open(file.path, os.O_RDWR)
            try:
                for one in together:
                    position = one.start - file.start_offset
                    for piece in _replacement(one):
                        syscalls.pwrite(fd, piece, position)
                        position += len(piece)
                syscalls.fdatasync(fd)
            finally:
                syscalls.close(fd)
    finally:
        files.close()


def _replacement(one: DamagedRange) -> Iterator[bytes]:
    """What is written over a range, piece by piece: records of its length together, a blank at the
    end of its file."""
    if one.how == "blank":
        yield blank_head(one.end - one.start)
        return
    offset = one.start
    for unit in one.pointed_fillers:
        if unit.start == offset:  # one that several units share is written once
            yield _record(one, offset, unit.size, unit)
            offset = unit.end
    while offset < one.records_end:
        size = one.records_end - offset
        if size > RECORD_BYTES_MAX:
            size = min(RECORD_BYTES_MAX, size - RECORD_BYTES_MIN)
        yield _record(one, offset, size)
        offset += size
    if one.blank_size:
        yield blank_head(one.blank_size)


def _record(
    one: DamagedRange, offset: int, size: int, pointed_filler: PointedFiller | None = None
) -> bytes:
    properties = b"" if pointed_filler is None else pointed_filler.properties
    return encode_record(
        topic=REPAIR_TOPIC,
        body=bytes(size - RECORD_BYTES_MIN - len(properties)),
        properties=properties,
        queue_id=0 if pointed_filler is None else pointed_filler.queue_id,
        # An ordered consumer of RocketMQ commits the offset after it.
        queue_offset=0 if pointed_filler is None else pointed_filler.queue_offset,
        flag=0 if pointed_filler is None else POINTED_FLAG,
        sys_flag=ROLLED_BACK,
        physical_offset=offset,
        born_timestamp_ms=one.time_ms,
        store_timestamp_ms=one.time_ms,
    )


def _drop_index(store: Store) -> None:
    """Removes the index, whose entries may point to records that are gone; the next open rebuilds
    it. Its files go before anything is overwritten, so that they are gone if the rest is killed."""
    layout, _, _ = store._open().log_bounds()
    names = sorted(os.listdir(layout.index)) if layout.index.is_dir() else []
    for name in names:
        syscalls.unlink(os.fspath(layout.index / name))
    if names:
        syscalls.sync_directory(os.fspath(layout.index))


def _make_index_again(
    recovery: RecoveryReport, path: str | os.PathLike[str], options: Mapping[str, Any]
) -> RecoveryReport:
    """Has the index made again by an open; the report with a note where that leaves it out."""
    left: object = None
    options = {**options, "deliver_delayed": False}
    try:
        with open_store(path, "r+", **options) as store:
            index = store._open().index
            left = index.degraded if isinstance(index, IndexStore) else None
    except StoreLockedError as error:
        left = error
    if left is None:
        return recovery
    note = f"the index is left out, and the next open makes it: {left}"
    logger.warning("%s: %s", os.fspath(path), note)
    return replace(recovery, notes=(*recovery.notes, note))
