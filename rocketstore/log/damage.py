"""What a walk found where records should be: damage, and valid records after it."""

from __future__ import annotations

from dataclasses import dataclass

from rocketstore.values.plural import counted
from rocketstore.values.public import public

__all__ = ["Damage", "ValidRun"]


@public
@dataclass(frozen=True, slots=True)
class Damage:
    """A range that holds no record that can be believed, although it was durable or valid records lie
    after it. `topics`: of the lost records, as far as their headers show."""

    start: int
    end: int
    reason: str
    topics: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}): {self.reason}{_named(self.topics)}"


@public
@dataclass(frozen=True, slots=True)
class ValidRun:
    """Valid records after a torn one: kept in quarantine, never served."""

    start: int
    end: int
    records: int
    topics: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}): {counted(self.records, 'record')}{_named(self.topics)}"


def _named(topics: tuple[str, ...]) -> str:
    """Out of records that are not believed: what could steer a terminal or end the line is escaped."""
    shown = (t if t.isprintable() else t.encode("unicode_escape").decode() for t in topics)
    return f", topics {', '.join(shown)}" if topics else ""
