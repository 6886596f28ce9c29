"""What the parts of the demo report: one row for each part, and the table of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.table import Table

from rocketstore.cli.output import percentile, size_text, time_text

__all__ = ["Row", "table_of"]


@dataclass(slots=True)
class Row:
    """One line of the table: what was done, how much of it, how fast. Latencies are samples, in
    ns."""

    what: str
    durability: str = ""
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    latencies_ns: list[int] = field(default_factory=list)
    recoveries_s: list[float] = field(default_factory=list)
    #: Acknowledged messages that are gone, and messages that are not what was put.
    lost: int = 0
    mismatched: int = 0
    faults: list[str] = field(default_factory=list)

    def lose(self, count: int, text: str) -> None:
        self.lost += count
        self.faults.append(f"{self.what}: {text}")

    def differ(self, count: int, text: str) -> None:
        self.mismatched += count
        self.faults.append(f"{self.what}: {text}")


def table_of(rows: Sequence[Row]) -> Table:
    names = ("durability", "messages", "bytes", "messages/s", "p50", "p99", "p99.9", "recovery")
    table = Table("", *names, "lost", "wrong", box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        rate = f"{row.messages / row.seconds:,.0f}" if row.seconds else ""
        points = [percentile(row.latencies_ns, part) for part in (0.5, 0.99, 0.999)]
        latencies = [time_text(point) if point else "" for point in points]
        recovery = ""
        if row.recoveries_s:
            middle = sorted(row.recoveries_s)[len(row.recoveries_s) // 2]
            recovery = f"{middle * 1e3:.0f} ms, max {max(row.recoveries_s) * 1e3:.0f} ms"
        table.add_row(
            row.what,
            row.durability,
            f"{row.messages:,}",
            size_text(row.bytes),
            rate,
            *latencies,
            recovery,
            f"{row.lost:,}",
            f"{row.mismatched:,}",
        )
    return table
