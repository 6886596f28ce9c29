"""The report of a recovery, for operators and for the next phase of an open."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rocketstore.log.damage import Damage, ValidRun
from rocketstore.values.plural import counted
from rocketstore.values.public import public

if TYPE_CHECKING:
    from rocketstore.log.commitlog.checkpoint import OwnCheckpoint

__all__ = ["RecoveryReport"]


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """The outcome of opening a log. Offsets are physical.

    `mode`: "clean" or "unclean" after rocketstore, "foreign-clean" or "foreign-unclean" after
    another writer. `end` is where the next record goes; the log is readable in [begin, end) but for
    `damage`.
    """

    mode: str
    begin: int
    start: int
    end: int
    scanned_bytes: int = 0
    scanned_records: int = 0
    seconds: float = 0.0
    #: Durable offset of our checkpoint, whether recovery could use it or not.
    was_durable: int = 0
    #: Range that was cut off the end, [start, end); None without a cut.
    cut: tuple[int, int] | None = None
    quarantine: tuple[str, ...] = ()
    valid_runs: tuple[ValidRun, ...] = ()
    damage: tuple[Damage, ...] = ()
    #: The range that another program may have written since we did; its record CRCs are not
    #: required.
    foreign: tuple[int, int] | None = None
    record_crc_mismatches: int = 0
    last_record_start: int = -1
    last_store_timestamp_ms: int = 0
    #: Where dispatch to the consume queues and to the index has to begin.
    dispatch_start: int = 0
    index_start: int = 0
    #: Which segments are missing, in words.
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    #: Our checkpoint as stored now; None when nothing was written.
    checkpoint: OwnCheckpoint | None = field(default=None, repr=False)

    @property
    def lost(self) -> bool:
        """Whether anything that may have been acknowledged cannot be read."""
        return bool(self.damage or self.valid_runs or self.missing) or self.end < self.was_durable

    def __str__(self) -> str:
        lines = [
            f"{self.mode} open: log [{self.begin}, {self.end}), "
            f"{counted(self.scanned_records, 'record')} in "
            f"{self.scanned_bytes} bytes checked from {self.start} in {self.seconds:.3f} s"
        ]
        if self.last_record_start >= 0:
            stored = _time(self.last_store_timestamp_ms)
            lines.append(f"last record at {self.last_record_start}, stored {stored}")
        if self.end < self.was_durable:
            lines.append(f"gone: [{self.end}, {self.was_durable}), which was durable")
        if self.cut is not None:
            lines.append(f"cut off: [{self.cut[0]}, {self.cut[1]})")
        lines += [
            f"valid records after the cut, perhaps acknowledged: {i}" for i in self.valid_runs
        ]
        lines += [f"damage: {damage}" for damage in self.damage]
        lines += [f"a copy is in {path}" for path in self.quarantine]
        if self.foreign is not None:
            lines.append(f"written by another program: [{self.foreign[0]}, {self.foreign[1]})")
        if self.record_crc_mismatches:
            lines.append(
                f"{counted(self.record_crc_mismatches, 'record')} there with a stale record CRC"
            )
        return "\n".join([*lines, *self.missing, *self.notes])


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds")
