"""What `verify` found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from rocketstore.values.plural import counted

__all__ = ["Counts", "Fault", "FaultKind", "Findings", "VerifyReport"]

#: Faults that a report names; it counts all of them.
MOST_NAMED: Final = 1000

#: "lost_file": the log lacks a file or a part of one, which only a copy brings back. "content": all
#: else.
FaultKind = Literal["content", "lost_file"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it should be. `position` counts bytes from the start of the file."""

    file: str
    position: int
    reason: str
    kind: FaultKind = "content"

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.reason}"


@dataclass(slots=True)
class Counts:
    """What was walked. The walkers count into it."""

    segments: int = 0
    records: int = 0
    blanks: int = 0
    record_bytes: int = 0
    lost_bytes: int = 0
    # Record checksums that do not hold where another program wrote: a stale property, no damage.
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
    fault_count: int = 0

    def add(self, file: str, position: int, reason: str, kind: FaultKind = "content") -> None:
        self.fault_count += 1
        if len(self.faults) < MOST_NAMED:
            self.faults.append(Fault(file, position, reason, kind))


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of `verify`.

    `faults` names the first 1000 of `fault_count`. `writer` says what had the store open meanwhile:
    "none", "live", "recovering" or "java". With a writer only what it had published was checked.
    """

    path: str
    writer: str
    begin_offset: int
    end_offset: int
    counts: Counts
    faults: tuple[Fault, ...]
    fault_count: int

    @property
    def ok(self) -> bool:
        return self.fault_count == 0

    def __str__(self) -> str:
        counts = self.counts
        verdict = "no faults" if self.ok else counted(self.fault_count, "fault")
        return (
            f"{self.path}: {verdict}; log {self.begin_offset} … {self.end_offset} with "
            f"{counted(counts.records, 'record')} in {counted(counts.segments, 'file')}, "
            f"{counted(counts.units, 'unit')} in {counted(counts.queues, 'queue')}, "
            f"{counted(counts.index_entries, 'entry', 'entries')} in "
            f"{counted(counts.index_files, 'index file')}"
        )
