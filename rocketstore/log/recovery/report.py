"""The report of a recovery, for operators and for the next phase of an open."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rocketstore.log.damage import Damage, ValidRun
from rocketstore.log.layout.log_dirs import gap_text
from rocketstore.values.plural import counted
from rocketstore.values.public import public

if TYPE_CHECKING:
    from rocketstore.log.commitlog.checkpoint import OwnCheckpoint

__all__ = [
    "LostMessages",
    "OffsetSetBack",
    "RecoveryReport",
    "RefilledQueue",
    "UnplacedMessages",
]

#: Lines of lost messages, and of offsets set back, that the text of a report shows; the fields have
#: all.
LINES_MAX: Final = 50


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class LostMessages:
    """Messages of one queue that cannot be read any more, although the queue had them: `count` of
    the queue offsets `first` … `last`. `why`: "cut", "segment missing" or "damaged"."""

    topic: str
    queue_id: int
    first: int
    last: int
    count: int
    why: str
    #: Store time of the last record that was kept; what was cut is not older. 0: not known.
    stored_after_ms: int = 0

    def __str__(self) -> str:
        which = f"{self.first}" if self.first == self.last else f"{self.first} … {self.last}"
        when = f"; stored {_time(self.stored_after_ms)} or later" if self.stored_after_ms else ""
        text = f"{self.topic}/{self.queue_id}: {which} ({counted(self.count, 'message')})"
        return f"{text} {self.why}{when}"


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSetBack:
    """The stored offset of a consumer group that was beyond the end of its queue: `was`, and what
    it is `now`."""

    group: str
    topic: str
    queue_id: int
    was: int
    now: int

    def __str__(self) -> str:
        queue = f"{self.topic}/{self.queue_id}"
        return f"group {self.group}: {queue} set back from {self.was} to {self.now}"


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class RefilledQueue:
    """Messages that the log has and their queue had not: `count` of the queue offsets `first` …
    `last`. The open gave them their places in the queue again, a reader's open in memory."""

    topic: str
    queue_id: int
    first: int
    last: int
    count: int

    def __str__(self) -> str:
        return _offsets_of(self)


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedMessages:
    """Messages that the log has and their queue cannot have: `count` of the queue offsets `first` …
    `last`. `why` names what is in the way."""

    topic: str
    queue_id: int
    first: int
    last: int
    count: int
    why: str

    def __str__(self) -> str:
        return f"{_offsets_of(self)}: {self.why}"


def _offsets_of(some: RefilledQueue | UnplacedMessages) -> str:
    which = f"{some.first}" if some.first == some.last else f"{some.first} … {some.last}"
    return f"{some.topic}/{some.queue_id}: {which} ({counted(some.count, 'message')})"


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """The outcome of opening a log. Offsets are physical.

    `mode`: "clean" or "unclean" after rocketstore, "foreign-clean" or "foreign-unclean" after
    another writer. A reader says the same of what it recovered in memory, and "following"
    while, and after, another process writes. `end` is where the next record goes; the log is
    readable in [begin, end) but for `damage`.
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
    #: Range that was cut off the end, [start, end), or that a reader passes over and the next open
    #: for writing cuts; None without a cut.
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
    #: Messages that the consume queues had and the log has not, by queue.
    lost_messages: tuple[LostMessages, ...] = ()
    #: Stored offsets of consumer groups that were beyond their queue.
    offsets_set_back: tuple[OffsetSetBack, ...] = ()
    #: Messages that were in the log and missing in the consume queues, by queue.
    refilled_queues: tuple[RefilledQueue, ...] = ()
    #: Messages that are in the log and that their queue cannot have: the store takes no puts to
    #: these queues, and no reads of them, until the next open finds the place free.
    unplaced_messages: tuple[UnplacedMessages, ...] = ()
    #: What shows that stored offsets of consumer groups are not as the last stop left them; among
    #: the notes, too.
    offsets_in_doubt: tuple[str, ...] = ()

    @property
    def cut_records(self) -> int:
        """Number of whole records in what was cut off; perhaps acknowledged."""
        return sum(one.records for one in self.valid_runs)

    @property
    def lost(self) -> bool:
        """Whether anything that may have been acknowledged cannot be read."""
        return (
            bool(self.damage or self.valid_runs or self.missing or self.lost_messages)
            or self.end < self.was_durable
        )

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
            whole = (
                f", with {counted(self.cut_records, 'whole record')}" if self.cut_records else ""
            )
            lines.append(f"cut off: [{self.cut[0]}, {self.cut[1]}){whole}")
        lines += [
            f"valid records after the cut, perhaps acknowledged: {i}" for i in self.valid_runs
        ]
        told = "\n".join(self.missing)  # a missing segment is damage, too
        lines += [
            f"damage: {one}"
            for one in self.damage
            if f"{gap_text(one.start, one.end)};" not in told
        ]
        if self.lost_messages:
            count = sum(one.count for one in self.lost_messages)
            lines.append(f"lost: {counted(count, 'message')} that the queues knew")
            lines += _first(self.lost_messages)
        if self.refilled_queues:
            count = sum(one.count for one in self.refilled_queues)
            lines.append(
                f"in the log, missing in the queues, made again: {counted(count, 'message')}"
            )
            lines += _first(self.refilled_queues)
        if self.unplaced_messages:
            count = sum(one.count for one in self.unplaced_messages)
            lines.append(f"in the log, and no place in their queues: {counted(count, 'message')}")
            lines += _first(self.unplaced_messages)
        if self.offsets_set_back:
            lines.append("offsets of consumer groups were beyond their queues:")
            lines += _first(self.offsets_set_back)
        lines += [f"a copy is in {path}" for path in self.quarantine]
        if self.foreign is not None:
            lines.append(f"written by another program: [{self.foreign[0]}, {self.foreign[1]})")
        if self.record_crc_mismatches:
            lines.append(
                f"{counted(self.record_crc_mismatches, 'record')} there with a stale record CRC"
            )
        return "\n".join([*lines, *self.missing, *self.notes])


def _first(
    found: Sequence[LostMessages | OffsetSetBack | RefilledQueue | UnplacedMessages],
) -> list[str]:
    lines = [f"  {one}" for one in found[:LINES_MAX]]
    if len(found) > LINES_MAX:
        lines.append(f"  … and {len(found) - LINES_MAX} more")
    return lines


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds")
