"""Damaged ranges of a log, where no record can be believed, and what `repair` may write there."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketstore._native.format.constants import BLANK_BYTES, BLANK_MAGIC
from rocketstore._native.format.scanner import VERIFY_BODY_CRC, VERIFY_RECORD_CRC, read_message
from rocketstore.api.scan import scan
from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.column_reader import MISSING_SEGMENT, TRIMMED, LogFiles
from rocketstore.scanning.scan import Scan
from rocketstore.store import Store
from rocketstore.tools._repair.units import PointedFiller, pointed_fillers, units_into
from rocketstore.tools.filler_records import RECORD_BYTES_MIN
from rocketstore.values.arguments import Progress

__all__ = [
    "DamagedRange",
    "blank_head",
    "damaged_ranges",
    "log_files",
    "with_pointed_fillers",
]

BOTH: Final = VERIFY_BODY_CRC | VERIFY_RECORD_CRC


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A damaged range within one file, that file's end, and the store time of a neighbour; of missing
    files that follow each other all."""

    start: int
    end: int
    reason: str
    file_end: int
    time_ms: int
    pointed_fillers: tuple[PointedFiller, ...] = ()

    @property
    def how(self) -> str:
        size = self.end - self.start
        if self.reason == MISSING_SEGMENT:
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
        return BLANK_BYTES if self.end == self.file_end else 0

    @property
    def records_end(self) -> int:
        return self.end - self.blank_size

    @property
    def fits(self) -> bool:
        return self.how in ("record", "blank")


def blank_head(size: int) -> bytes:
    """The first bytes of a blank of `size` bytes: its size and its mark."""
    return size.to_bytes(4, "big", signed=True) + BLANK_MAGIC


def damaged_ranges(store: Store, progress: Progress | None) -> list[DamagedRange]:
    """Where no record can be believed, file by file but for missing ones, in order; the first ten
    thousand places."""
    walk = scan(
        store, columns=("store_timestamp_ms",), system_topics=True, verify=True, on_damage="skip"
    )
    ends, times = [], []  # of each chunk: where it ends, the store time of its last record
    for chunk in walk:
        ends.append(chunk.end_offset)
        times.append(int(chunk["store_timestamp_ms"][-1]))
        if progress is not None:
            progress(
                "log", chunk.end_offset - walk.begin_offset, walk.end_offset - walk.begin_offset
            )
    size = store.config.commit_log_file_size_bytes
    damaged = [damage for damage in walk.report.damage if damage.reason != TRIMMED]
    lost = [(damage.start, damage.end, damage.reason) for damage in damaged]
    lost += _without_blank(store, walk, ends, lost)
    found = []
    for start, last, reason in sorted(lost):
        # A chunk ends where damage begins: the record before it, or the first one after it.
        near = max(0, bisect.bisect_right(ends, start) - 1)
        time_ms = times[near] if times else 0
        while start < last:
            # Missing files are one range: a name far beyond the others leaves millions of them.
            file_end = last if reason == MISSING_SEGMENT else (start // size + 1) * size
            end = min(last, file_end)
            found.append(DamagedRange(start, end, reason, file_end, time_ms))
            start = end
    return _without_sound_records(store, found)


def with_pointed_fillers(store: Store, ranges: Sequence[DamagedRange]) -> list[DamagedRange]:
    """The same ranges, with what the last units of queues need there."""
    found = pointed_fillers(store, ranges)
    return [
        dataclasses.replace(one, pointed_fillers=tuple(units))
        for one, units in zip(ranges, found, strict=True)
    ]


def _without_sound_records(store: Store, ranges: list[DamagedRange]) -> list[DamagedRange]:
    """A record between damage on both sides is not believed by itself; with a unit that points to
    it, it is."""
    _, files = log_files(store)
    sound: dict[int, int] = {}
    try:
        for found in units_into(store, ranges):
            for offset, size in zip(found.offsets.tolist(), found.sizes.tolist(), strict=True):
                file = files.at(offset)
                if file is None or offset in sound:
                    continue
                with contextlib.suppress(CorruptRecordError):
                    message = read_message(file, offset - file.start_offset, file.size, verify=BOTH)
                    if message.size == size:
                        sound[offset] = offset + size
    finally:
        files.close()
    if not sound:
        return ranges
    left = []
    for one in ranges:
        start = one.start
        for offset in sorted(at for at in sound if one.start <= at < one.end):
            if offset < start or sound[offset] > one.end:
                continue  # it overlaps what is believed already
            if start < offset:
                left.append(dataclasses.replace(one, start=start, end=offset))
            start = sound[offset]
        if start < one.end:
            left.append(dataclasses.replace(one, start=start))
    return left


def _without_blank(
    store: Store, walk: Scan, ends: list[int], damaged: Sequence[tuple[int, int, str]]
) -> list[tuple[int, int, str]]:
    """Files whose records end before they do, with nothing there that says so: a reader of ours
    goes on in the next file, RocketMQ ends its log."""
    _, files = log_files(store)
    starts = [start for start, _, _ in damaged]
    found = []
    try:
        for start in files.starts():
            file_end = start + files.size
            if start < walk.begin_offset or file_end > walk.end_offset:
                continue
            number = bisect.bisect_right(ends, file_end) - 1
            used = max(start, ends[number]) if number >= 0 else start
            file = files.at(start)
            before = bisect.bisect_right(starts, used) - 1
            known = before >= 0 and used < damaged[before][1]
            if file is None or used == file_end or known:
                continue
            rest = file_end - used
            blank = blank_head(rest)[:rest]
            if file.read(used - start, min(rest, BLANK_BYTES)) != blank:
                found.append((used, file_end, "no blank"))
    finally:
        files.close()
    return found


def log_files(store: Store) -> tuple[StoreLayout, LogFiles]:
    layout, _, _ = store._open().log_bounds()
    return layout, LogFiles(layout)
