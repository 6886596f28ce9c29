"""`rocketstore bench`: how fast this machine and this disk store and read, compared with raw
writes."""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.bench.machine import MEMORY_FILE_SYSTEMS, file_system_of, machine, machine_line
from rocketstore.cli.bench.sides import Group, Round, Side, open_group
from rocketstore.cli.output import console, percentile, steps, time_text
from rocketstore.cli.parameters import config_option, config_options

__all__ = ["command", "scratch_directory"]

SIZES: Final = (100, 1024)
DURABILITIES: Final = ("os", "disk")
#: Rounds of each side that count; a short one before them does not.
ROUNDS: Final = 3
FIRST_WEIGHT: Final = 0.1
#: Shortest round, seconds, however little time is left.
LEAST_S: Final = 0.005

RATES: Final = ("messages/s", "MB/s")
#: Column → key of a result.
LATENCIES: Final = {"p50": "p50_ns", "p99": "p99_ns", "p99.9": "p999_ns", "max": "max_ns"}

NOTES: Final = """\
MB/s: of bodies. × raw: against the raw write of the same record bytes in the same turn, median of {rounds}.
p50 to max: of one message; of submit until its result, with 63 others that share its syncs.
disk: a call returns when its bytes are on the disk; raw is pwritev2(RWF_DSYNC) over blocks written before.
cold: into new files, as a growing log meets them; bytes go to the disk outside the clock (os).
warm: read from the page cache, checksums compared; nothing here says how fast a disk reads.
"""


@dataclass(slots=True)
class Found:
    """The rounds of one side that count."""

    group: Group
    side: Side
    rounds: list[Round] = field(default_factory=list)


class Pace:
    """Deals the time of the whole out to the rounds; what one leaves of its share, the others
    have."""

    def __init__(self, seconds: float, weight: float) -> None:
        self._end = time.monotonic() + seconds
        self._weight = weight

    def share(self, weight: float) -> float:
        left = self._end - time.monotonic()
        part = left * weight / max(self._weight, weight)
        self._weight -= weight
        return max(LEAST_S, part)


def _number(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """Nothing is smaller or larger than nan, so that no range refuses it."""
    if math.isnan(value):
        raise click.BadParameter("nan is no number of seconds.")
    return value


@click.command
@click.option(
    "--size",
    "sizes",
    type=click.IntRange(0, 1 << 20),
    multiple=True,
    default=SIZES,
    show_default=True,
    help="Bytes of a body; may be given several times.",
)
@click.option(
    "--durability",
    "durabilities",
    type=click.Choice(["memory", "os", "disk"]),
    multiple=True,
    default=DURABILITIES,
    show_default=True,
    help="What a stored message survives; may be given several times.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.01, 3600),
    default=60.0,
    callback=_number,
    show_default=True,
    help="Duration of the whole, about.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    default=Path(),
    help="Where to make the stores; default: the current directory.",
)
@config_option
@click.option(
    "--json",
    "target",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=None,
    metavar="FILE",
    help="Write the machine, every round and every figure to FILE as well.",
)
def command(
    sizes: tuple[int, ...],
    durabilities: tuple[rocketstore.Durability, ...],
    seconds: float,
    directory: Path,
    target: Path | None,
) -> int:
    """Measures put, put_batch, put_columns, submit, reading and scanning from one thread.

    Raw writes of the same bytes are measured for comparison. The stores need up to 4 GiB in the
    directory, whose disk is what is measured. They are removed at the end, after Ctrl-C as well.

    \b
    Examples:
      rocketstore bench --directory /data
      rocketstore bench --directory /data --durability disk --size 4096 --seconds 20
      rocketstore bench --json before.json
    """
    if target is not None and not os.access(target.absolute().parent, os.W_OK):
        raise click.BadParameter(f"{target.parent} cannot be written to", param_hint="--json")
    kind = file_system_of(directory)
    if kind in MEMORY_FILE_SYSTEMS:
        click.echo(
            f"rocketstore: {directory.absolute()} is on {kind}, whose files are memory: "
            "durability disk means nothing there; name a directory on a disk with --directory",
            err=True,
        )
    facts = machine(directory)
    sizes, durabilities = tuple(dict.fromkeys(sizes)), tuple(dict.fromkeys(durabilities))
    found = _measure(sizes, durabilities, seconds, directory)
    rows = [_row(one, found) for one in found]
    try:  # whichever of the two fails: a minute was spent on the other as well
        if target is not None:
            text = json.dumps({"machine": facts, "results": rows}, indent=1)
            target.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        error.filename = str(target)  # a write does not say it
        raise
    finally:
        _show(rows, facts)
    return exit_codes.OK


@contextmanager
def scratch_directory(prefix: str, parent: Path) -> Iterator[Path]:
    """A new directory, which is removed at the end. A second Ctrl-C during the removal, which takes
    its time with some GiB, does not leave a part."""
    path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield Path(path)
    finally:
        try:
            shutil.rmtree(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _measure(
    sizes: Sequence[int],
    durabilities: Sequence[rocketstore.Durability],
    seconds: float,
    directory: Path,
) -> list[Found]:
    """All sides; those of one size and durability take turns. Reads come once for each size."""
    sides = len(sizes) * (6 * len(durabilities) + 2)
    pace = Pace(seconds, sides * (ROUNDS + FIRST_WEIGHT))
    found: list[Found] = []
    # The stores are new: none has its log elsewhere.
    options = config_options("commit_log_dir", "read_only_commit_log_dirs")
    with steps() as progress:
        task = progress.add_task("", total=sides * (ROUNDS + 1))
        for durability in durabilities:
            for size in sizes:
                progress.update(task, description=f"{size} B, {durability}")
                reads = durability == durabilities[0]
                with (
                    scratch_directory("rocketstore-bench-", directory) as path,
                    open_group(path, size, durability, reads=reads, **options) as groups,
                ):
                    for group in groups:
                        own = [Found(group, side) for side in group.sides]
                        for number in range(ROUNDS + 1):
                            for one in own:
                                round_ = one.side.run(pace.share(1.0 if number else FIRST_WEIGHT))
                                if number:
                                    one.rounds.append(round_)
                                progress.advance(task)
                        found += own
    return found


def _row(one: Found, others: Sequence[Found]) -> dict[str, Any]:
    """The figures of one side, as they are printed and saved."""
    rates = [round_.rate for round_ in one.rounds]
    rate = statistics.median(rates)
    raw = next((o for o in others if o.group is one.group and o.side.what == one.side.raw), None)
    ratios = [] if raw is None else [
        mine / max(other.rate, 1e-9) for mine, other in zip(rates, raw.rounds, strict=True)
    ]  # fmt: skip
    row: dict[str, Any] = {
        "what": one.side.what,
        "size": one.group.size,
        "durability": one.group.durability,
        "pages": one.group.pages,
        "messages": sum(round_.messages for round_ in one.rounds),
        "messages_per_s": rate,
        "mb_per_s": rate * one.group.size / 1e6,
        "rates": rates,
        "raw": one.side.raw,
        "ratio": statistics.median(ratios) if ratios else None,
        "ratios": ratios,
    }
    if one.side.single:
        latencies = [latency for round_ in one.rounds for latency in round_.latencies_ns]
        for name, part in zip(LATENCIES.values(), (0.5, 0.99, 0.999), strict=False):
            row[name] = percentile(latencies, part)
        row["max_ns"] = max(round_.longest_ns for round_ in one.rounds)
    return row


def _show(rows: Sequence[dict[str, Any]], facts: dict[str, Any]) -> None:
    """One table for each size, durability and state of the pages."""
    output = console()
    keys = dict.fromkeys((row["durability"], row["size"], row["pages"]) for row in rows)
    for durability, size, pages in keys:
        what = "put, durability " + durability if pages == "cold" else "read"
        names = RATES if pages == "warm" else (*RATES, "× raw", *LATENCIES)
        table = Table("", box=None, pad_edge=False)
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            if (row["durability"], row["size"], row["pages"]) == (durability, size, pages):
                points = [row.get(key) for key in LATENCIES.values()]
                cells = [
                    row["what"],
                    f"{row['messages_per_s']:,.0f}",
                    f"{row['mb_per_s']:,.1f}",
                    "" if row["ratio"] is None else f"{row['ratio']:.2f}",
                    *["" if point is None else time_text(point) for point in points],
                ]
                table.add_row(*cells[: 1 + len(names)])
        output.print(f"{size} B, {what}, {pages}", style="bold")
        output.print(table)
        output.print()
    output.print(NOTES.format(rounds=ROUNDS), end="")
    output.print(machine_line(facts))
