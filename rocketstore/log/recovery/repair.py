"""What recovery changes on disk, in an order that a crash anywhere cannot turn into a loss (D-20 …
D-27).

A cut at X: what stays is made durable → our checkpoint says {durable: X, cut: X} → a copy of what
goes → later segments are removed, last to first → zeros up to the end of the file, synced → the
intent is cleared. A recovery that finds the intent goes through all of it again; each step finds
its work done or does the rest.
"""

from __future__ import annotations

import dataclasses
import logging
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.commitlog.checkpoint import (
    CheckpointFile,
    OwnCheckpoint,
    discard_checkpoint,
    fingerprint,
)
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.mapped_files.mapped_files import descriptor_of
from rocketstore.log.recovery.broker_state import set_broker_state_aside
from rocketstore.log.recovery.quarantine import (
    Lost,
    Piece,
    keep_copy,
    keep_end_of_file,
    keep_ranges,
    pieces_of,
)
from rocketstore.log.recovery.walk import LogWalk
from rocketstore.values.plural import counted

__all__ = ["LogRepair", "is_padding"]

logger = logging.getLogger(__name__)

#: Bytes per read and write of a repair.
STEP_BYTES = 1 << 20
#: Largest folio of the page cache, bytes: what one page of page table entries maps. A write that
#: failed may have spoilt synced bytes of the folio in which it began, because a store to a mapping
#: writes all of it.
BLOCK_BYTES = mmap.PAGESIZE * mmap.PAGESIZE // 8
#: Log between two stored durable offsets, bytes, checked and synced again (D-23).
ADVANCE_BYTES = 64 << 20
#: RocketMQ's unit of an append with `writeWithoutMmap`, bytes.
PAGE_BYTES: Final = 4096
#: Where a record names its own physical offset.
OWN_OFFSET_AT: Final = 28


class LogRepair:
    """The disk side of one recovery. Only a recovery with "write" access calls it."""

    def __init__(
        self,
        log: MappedFileQueue,
        layout: StoreLayout,
        checkpoint: CheckpointFile | None,
        base: OwnCheckpoint,
        on_foreign: Callable[[int, int], None] | None,
        keep: Callable[[LogWalk, int], None],
        synced: int,
    ) -> None:
        """`base`: the checkpoint on disk, or the model of the first one. `keep(walk, offset)` is
        called before the durable offset moves and stores what else the next attempt needs. Below
        `synced` the disk has what the page cache shows."""
        self._log = log
        self._layout = layout
        self._checkpoint = checkpoint
        self._last = base
        self._on_foreign = on_foreign
        self._keep_progress = keep
        self._synced = synced
        #: Whether the last writer may have left stale bytes after its last record.
        self.padded = False
        #: What a copy of the bytes that are cut says of them.
        self.why_cut = "after the end of the log"
        self._durable = 0
        self._noted = 0
        self._kept = False
        self.cut_range: tuple[int, int] | None = None
        self.quarantine: list[str] = []
        self.notes: list[str] = []
        self.stored: OwnCheckpoint | None = None

    # ---- before the walk ----

    def discard(self, own: OwnCheckpoint | None, *, another: bool) -> None:
        """Discards our checkpoint before anything changes, because it does not fit, or `another`
        program wrote last."""
        if self._checkpoint is not None:
            discarded = discard_checkpoint(self._checkpoint, own, another=another)
            if discarded is not None:
                self._last = dataclasses.replace(self._last, generation=discarded.generation)

    def prepare(self, durable: int, start: int) -> None:
        """Gives files their right length, and removes segments below the minimum (D-27)."""
        self._durable, self._noted = durable, start
        if self._log.wrong_sizes:
            self._repair_lengths()
        minimum = self._last.minimum
        if minimum > self._log.begin_offset:
            self._forget_live(lambda start: start + (self._log.file_size or 0) <= minimum)
            removed = self._log.remove_before(minimum)
            if removed:
                self.notes.append(
                    f"removed {counted(len(removed), 'segment')} below the minimum {minimum}"
                )

    def _repair_lengths(self) -> None:
        log = self._log
        whole = []
        for shape in log.wrong_sizes:
            start = parse_segment_name(os.path.basename(shape.path))
            note = f"{shape.path} has {shape.found_bytes} bytes instead of {shape.wanted_bytes}"
            if start is None or (shape.wanted_bytes and start % shape.wanted_bytes):
                note += ": left alone"
            elif shape.found_bytes == 0 and shape.last:
                log.remove_from(start)
                syscalls.unlink(shape.path)
                syscalls.sync_directory(os.fspath(log.directory))
                note += ": removed"
            else:
                if shape.found_bytes > shape.wanted_bytes:
                    extra = start + shape.wanted_bytes
                    self.quarantine.append(
                        keep_end_of_file(self._layout, shape.path, shape.wanted_bytes, extra)
                    )
                whole.append(shape)
            self.notes.append(note)
        log.wrong_sizes = whole
        log.repair_last()

    # ---- making good records durable (D-23) ----

    def advance(
        self,
        walk: LogWalk,
        offset: int,
        *,
        rewrite: bool,
        foreign: tuple[int, int] | None,
        starts: tuple[int, int],
    ) -> None:
        """Called as the walk finds good records up to `offset`. After `ADVANCE_BYTES` makes them
        durable and stores that, so that a recovery that is killed continues here."""
        if offset - self._noted < ADVANCE_BYTES:
            return
        self._noted, self._kept = offset, True
        if offset <= self._durable:
            self._keep_progress(walk, offset)
            return
        self._make_durable(walk, offset, rewrite=rewrite)
        if foreign is not None and self._on_foreign is not None:
            self._on_foreign(*foreign)
        self._keep_progress(walk, offset)
        self._store(offset, walk, starts, cut=-1)

    def settle(self, walk: LogWalk, *, rewrite: bool) -> None:
        """Makes all that was walked durable."""
        self._make_durable(walk, walk.end, rewrite=rewrite)
        if rewrite:
            syscalls.sync_directory(os.fspath(self._log.directory))

    def _make_durable(self, walk: LogWalk, end: int, *, rewrite: bool) -> None:
        """`rewrite`: whether the page cache may show what the disk never got, so that a sync is not
        enough."""
        begin = max(self._durable, walk.start)
        if rewrite:
            self._write_again(walk, begin, end)
        else:
            for file in self._log.files:
                if file.end_offset > begin and file.start_offset < end:
                    with descriptor_of(file) as fd:
                        syscalls.fdatasync(fd)
        self._durable = max(self._durable, end)

    def _write_again(self, walk: LogWalk, start: int, end: int) -> None:
        """Writes each good byte again, unless its writer had seen it synced, and syncs. Does not
        touch damaged ranges."""
        for file in self._log.files:
            first, last = max(start, file.start_offset), min(end, file.end_offset)
            if first >= last:
                continue
            first = max(first, self._synced - BLOCK_BYTES)
            with descriptor_of(file) as fd:
                for begin, stop in _without(first, last, [(d.start, d.end) for d in walk.damage]):
                    for offset in range(begin, stop, STEP_BYTES):
                        position = offset - file.start_offset
                        data = file.read(position, min(STEP_BYTES, stop - offset))
                        syscalls.pwrite(fd, data, position)
                syscalls.fdatasync(fd)

    # ---- the end ----

    def finish(
        self,
        walk: LogWalk,
        *,
        whole_tail: bool,
        foreign: tuple[int, int] | None,
        starts: tuple[int, int],
    ) -> None:
        """Cuts the log at its end, copies damaged ranges, stores the checkpoint.

        `whole_tail`: whether every byte after the end is checked, not only later files (D-08).
        """
        end = walk.end
        if foreign is not None and self._on_foreign is not None:
            self._on_foreign(*foreign)
        current = self._log.find(end)
        keep = current.end_offset if current is not None else end
        pieces = self._behind(end, keep, whole_tail=whole_tail)
        if self._are_padding(pieces, end) and current is not None:
            self._zero(current, end)
            pieces = []
        if pieces or self._last.cut >= 0:
            self._store(end, walk, starts, cut=end)
            valid_runs = [dataclasses.asdict(valid_run) for valid_run in walk.valid_runs]
            self._keep(pieces, self.why_cut, {"valid_records": valid_runs})
            self._remove_from(keep)
            if current is not None:
                self._zero(current, end)
            if pieces:
                self.cut_range = (pieces[0].start, pieces[-1].end)
        elif self._log.end_offset > keep:
            self._remove_from(keep)
        lost = (
            Lost(
                pieces_of(self._log.files, one.start, one.end),
                one.reason,
                {"topics": list(one.topics)},
            )
            for one in walk.damage
        )
        self.quarantine += keep_ranges(self._layout, lost, "damage")
        if self._kept:
            self._keep_progress(walk, end)
        if whole_tail:
            cut = self.cut_range is not None
            self.notes += set_broker_state_aside(self._layout, end, cut=cut)
        self._store(end, walk, starts, cut=-1)

    def plan(self, walk: LogWalk, *, whole_tail: bool) -> None:
        """Says what `prepare` and `finish` would cut and change; changes nothing."""
        current = self._log.find(walk.end)
        keep = current.end_offset if current is not None else walk.end
        pieces = self._behind(walk.end, keep, whole_tail=whole_tail)
        if pieces and not self._are_padding(pieces, walk.end):
            self.cut_range = (pieces[0].start, pieces[-1].end)
        self.notes += [str(shape) for shape in self._log.wrong_sizes]

    def _behind(self, end: int, keep: int, *, whole_tail: bool) -> list[Piece]:
        """What is not zero after the end of the log; `keep` is the end of the file with it."""
        return pieces_of(self._log.files, end if whole_tail else keep, self._log.end_offset)

    def _are_padding(self, pieces: list[Piece], end: int) -> bool:
        """Whether all bytes after the end of the log are what RocketMQ fills a page with."""
        if not self.padded or len(pieces) != 1 or pieces[0].start != end:
            return False
        file = pieces[0].file
        return is_padding(self._layout, file, end - file.start_offset)

    def _keep(self, pieces: list[Piece], reason: str, details: Mapping[str, Any]) -> None:
        kept = keep_copy(self._layout, pieces, reason, details)
        if kept is not None:
            self.quarantine.append(kept)

    def _remove_from(self, offset: int) -> None:
        """Removes later files, last to first; their second names first, or they would come back
        (D-05)."""
        self._forget_live(lambda start: start >= offset)
        removed = self._log.remove_from(offset)
        if removed:
            self.notes.append(
                f"removed {counted(len(removed), 'segment')} after the end of the log"
            )

    def _forget_live(self, gone: Callable[[int], bool]) -> None:
        live = self._layout.live
        names = os.listdir(live) if live.exists() else []
        starts = {name: parse_segment_name(name) for name in names}
        lost = [name for name, start in starts.items() if start is not None and gone(start)]
        for name in sorted(lost, reverse=True):
            syscalls.unlink(os.fspath(live / name))
        if lost:
            syscalls.sync_directory(os.fspath(live))

    def _zero(self, file: MappedFile, end: int) -> None:
        """Writes and syncs zeros from `end` to the end of the file. Passes over holes, which are
        zeros on the disk, too."""
        position = end - file.start_offset
        with descriptor_of(file) as fd:
            while position < file.size:
                data = syscalls.seek_data(fd, position)
                if data is None or data >= file.size:
                    break
                position = max(position, data)
                # Up to a multiple: what follows may be a hole, and the disk full.
                count = min(STEP_BYTES - position % STEP_BYTES, file.size - position)
                syscalls.pwrite(fd, bytes(count), position)
                position += count
            syscalls.fdatasync(fd)

    def _store(self, end: int, walk: LogWalk, starts: tuple[int, int], *, cut: int) -> None:
        """Stores our checkpoint, if it says anything new."""
        last = self._last
        minimum = max(last.minimum, self._log.begin_offset) if self._log.files else end
        fields: dict[str, Any] = {
            **fingerprint(self._log, end, walk.last_record_start),
            "dispatched": starts[0],
            "indexed": starts[1],
            "minimum": minimum,
            "last_store_timestamp_ms": walk.last_store_timestamp_ms,
            "cut": cut,
            "clean": False,
        }
        new = dataclasses.replace(last, **fields)
        if new != last and self._checkpoint is not None:
            new = dataclasses.replace(new, generation=last.generation + 1)
            self._checkpoint.store(new)
            self._last = new
        self.stored = self._last


def _without(start: int, end: int, holes: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """[start, end) without `holes`, which are in order."""
    for low, high in holes:
        if low >= end or high <= start:
            continue
        if start < low:
            yield start, low
        start = max(start, high)
    if start < end:
        yield start, end


def is_padding(layout: StoreLayout, file: MappedFile, position: int) -> bool:
    """Whether what is at `position`, where the log ends, may be stale bytes of RocketMQ (format.md
    1.2): since 5.5.0 with `writeWithoutMmap` each append is filled up to the end of its page with
    what the buffer held before. So there are zeros from the end of the page on, and no record that
    names this place, which would be a damaged one.

    Only for a store that RocketMQ stopped cleanly.
    """
    page_end = min(file.size, -(-position // PAGE_BYTES) * PAGE_BYTES)
    if not layout.rocksdb.is_dir() or page_end == position:
        return False
    if file.find_data(page_end, file.size) < file.size:
        return False
    stale = file.read(position, page_end - position)
    named = int.from_bytes(stale[OWN_OFFSET_AT : OWN_OFFSET_AT + 8], "big", signed=True)
    return len(stale) < OWN_OFFSET_AT + 8 or named != file.start_offset + position
