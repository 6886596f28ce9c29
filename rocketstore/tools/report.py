"""What `verify` found."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from rocketstore.values.plural import counted

__all__ = [
    "Counts",
    "Fault",
    "FaultKind",
    "Findings",
    "QueueMessages",
    "Severity",
    "VerifyReport",
    "WithoutQueue",
]

#: Faults that a report names; it counts all of them.
MOST_NAMED: Final = 1000
#: Queues with lost or hidden messages that the text of a report names; the fields have all.
LINES_MAX: Final = 50

#: "log": bytes of the log are not what was stored. "lost": the log lacks bytes that only a copy
#: brings back. "derived": queues, index or checkpoints, which the log makes again. "offsets": stored
#: offsets of consumer groups. "broker": RocketMQ refuses to start. "config": a file below `config/`
#: that holds nothing to read.
FaultKind = Literal["log", "lost", "derived", "offsets", "broker", "config"]

#: "error": something is wrong. "notice": nothing is, but a reader of the report wants to know.
Severity = Literal["error", "notice"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it should be. `position` counts bytes from the start of the file.

    `code` names what it is within its kind, where that decides what repairs it.
    """

    file: str
    position: int
    reason: str
    kind: FaultKind = "log"
    severity: Severity = "error"
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.reason}"


@dataclass(frozen=True, slots=True)
class QueueMessages:
    """Messages of one queue: `count` of the queue offsets `first` … `last`. The times, in ms, are
    those of the records around them; 0: not known."""

    topic: str
    queue_id: int
    first: int
    last: int
    count: int
    stored_from_ms: int
    stored_to_ms: int

    def __str__(self) -> str:
        which = f"{self.first}" if self.first == self.last else f"{self.first} … {self.last}"
        text = f"{self.topic}/{self.queue_id}: {which} ({counted(self.count, 'message')})"
        if self.stored_from_ms and self.stored_to_ms:
            times = f"{_time(self.stored_from_ms)} … {_time(self.stored_to_ms)}"
            return f"{text}, stored {times}"
        return (
            f"{text}, stored {_time(self.stored_from_ms)} or later" if self.stored_from_ms else text
        )


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class WithoutQueue:
    """Records whose topic or queue id can be no directory: `count`, the first of them at
    `physical_offset`. `topic` is shown as Java shows it."""

    topic: str
    queue_id: int
    count: int
    physical_offset: int


@dataclass(slots=True)
class Counts:
    """What was walked. The walkers count into it."""

    segments: int = 0
    records: int = 0
    blanks: int = 0
    record_bytes: int = 0
    lost_bytes: int = 0
    # What the next open for writing cuts off the log.
    cut_bytes: int = 0
    # Record checksums that do not hold where another program wrote: perhaps a stale property.
    stale_checksums: int = 0
    queues: int = 0
    units: int = 0
    pre_blanks: int = 0
    undispatched: int = 0
    index_files: int = 0
    index_entries: int = 0


@dataclass(slots=True)
class Findings:
    """Counts and faults while they are gathered; one walk writes it."""

    counts: Counts = field(default_factory=Counts)
    faults: list[Fault] = field(default_factory=list)
    notices: list[Fault] = field(default_factory=list)
    kinds: Counter[FaultKind] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    lost: tuple[QueueMessages, ...] = ()
    hidden: tuple[QueueMessages, ...] = ()
    without_queue: tuple[WithoutQueue, ...] = ()

    def add(
        self, kind: FaultKind, file: str, position: int, reason: str, *, code: str = ""
    ) -> None:
        """Counts a fault, and names it while there is room, or where it is the first of its kind:
        what is advised must not hang on how many there are."""
        first = kind not in self.kinds or code not in self.codes
        self.kinds[kind] += 1
        self.codes[code] += 1
        if len(self.faults) < MOST_NAMED or first:
            self.faults.append(Fault(file, position, reason, kind, code=code))

    def notice(self, kind: FaultKind, file: str, reason: str, *, code: str = "") -> None:
        """What is no fault."""
        if len(self.notices) < MOST_NAMED:
            self.notices.append(Fault(file, 0, reason, kind, "notice", code))


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of `verify`.

    `faults` names the first 1000 of `fault_count`, and at least one of each kind; `kinds` counts
    them by kind. `notices` are no faults. `writer` says what had the store open meanwhile: "none",
    "live", "recovering" or "java". With a writer only what it had published was checked.
    """

    path: str
    writer: str
    begin_offset: int
    end_offset: int
    counts: Counts
    faults: tuple[Fault, ...]
    fault_count: int
    kinds: Mapping[FaultKind, int] = field(default_factory=dict)
    notices: tuple[Fault, ...] = ()
    #: Messages that the queues knew, or whose content is damaged.
    lost_messages: tuple[QueueMessages, ...] = ()
    #: Messages that the log has and no consumer gets. `counts.undispatched` are no such: the next
    #: open gives them their places.
    hidden_messages: tuple[QueueMessages, ...] = ()
    #: Records that no queue can have, by topic and queue id: no faults, and no consumer gets them.
    without_queue: tuple[WithoutQueue, ...] = ()
    #: In replication: "master", "replica", "" for neither, "unknown" where that cannot be read.
    role: str = ""

    @property
    def ok(self) -> bool:
        return self.fault_count == 0

    def __str__(self) -> str:
        counts = self.counts
        verdict = "no faults" if self.ok else counted(self.fault_count, "fault")
        if self.kinds:
            verdict += f" ({', '.join(f'{kind} {count}' for kind, count in self.kinds.items())})"
        first = (
            f"{self.path}: {verdict}; log {self.begin_offset} … {self.end_offset} with "
            f"{counted(counts.records, 'record')} in {counted(counts.segments, 'file')}, "
            f"{counted(counts.units, 'unit')} in {counted(counts.queues, 'queue')}, "
            f"{counted(counts.index_entries, 'entry', 'entries')} in "
            f"{counted(counts.index_files, 'index file')}"
        )
        return "\n".join([first, *self._messages()])

    def _messages(self) -> list[str]:
        """What became of messages, a line for each queue, up to `LINES_MAX`."""
        lines = []
        for what, found in (
            ("LOST: the log lacks", self.lost_messages),
            ("HIDDEN: the log has, and the queues have not,", self.hidden_messages),
        ):
            if found:
                lines.append(f"{what} {counted(sum(one.count for one in found), 'message')}")
                lines += [f"  {one}" for one in found[:LINES_MAX]]
            if len(found) > LINES_MAX:
                lines.append(f"  … and {counted(len(found) - LINES_MAX, 'more queue')}")
        if self.without_queue:
            count = sum(one.count for one in self.without_queue)
            lines.append(
                f"{counted(count, 'record')} in no queue, whose topic or queue id can be no "
                "directory: no consumer gets them, get and scan do"
            )
        waiting = self.counts.undispatched
        if waiting:
            are = "is" if waiting == 1 else "are"
            lines.append(
                f"{counted(waiting, 'record')} {are} in no queue yet: the next open makes the units"
            )
        return lines
