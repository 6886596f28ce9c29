"""`rocketstore demo`: a store is filled, its writers are killed, everything is read back."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.demo.directory import make_room, mark
from rocketstore.cli.demo.kills import kill_writers
from rocketstore.cli.demo.results import Row, table_of
from rocketstore.cli.demo.sources import (
    SourceFile,
    Stored,
    check_groups,
    check_keys,
    check_times,
    find_sources,
    ingest,
)
from rocketstore.cli.output import console, count_text, steps

__all__ = ["command", "run"]

Advance = Callable[[int], object]
#: Makes a progress bar of a name and a total.
Task = Callable[[str, int], Advance]

#: Small enough that the log rolls several times.
SEGMENT_BYTES: Final = 64 * 1024 * 1024
MOST_FAULTS: Final = 20


@click.command
@click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-store"),
    show_default=True,
    help="Where the demo makes its store; an earlier demo there is removed first.",
)
@click.option(
    "--kills", type=click.IntRange(0), default=20, show_default=True, help="Writers to kill."
)
@click.option("--files", type=click.IntRange(1), default=None, help="At most so many source files.")
@click.option("--seed", type=int, default=None, help="Seed of the moments of the kills.")
def command(store: Path, kills: int, files: int | None, seed: int | None) -> int:
    """Shows in two minutes what a store promises, and checks every byte of it.

    Stores every source line of the Python library. Kills writers at random points and compares what
    recovery finds with what was acknowledged. Reads everything back by consumer group, key and time
    and compares it with the files. Exit code 1 if anything was lost or differs. The store stays for
    a look with the other commands.
    """
    chosen = secrets.randbits(32) if seed is None else seed
    console().print(f"seed of the kills: {chosen} (again with --seed {chosen})")
    rows = run(store, find_sources(limit=files), kills, chosen)
    console().print("\n", table_of(rows), sep="")
    faults = [fault for row in rows for fault in row.faults]
    for fault in faults[:MOST_FAULTS]:
        click.echo(f"rocketstore: {fault}", err=True)
    lost = sum(row.lost for row in rows)
    mismatched = sum(row.mismatched for row in rows)
    stored = sum(row.messages for row in rows if row.durability)
    console().print(
        f"\n{count_text(stored, 'message')} stored, {count_text(kills, 'writer')} killed, "
        f"{lost:,} lost, {mismatched:,} mismatched; the store is in {store}"
    )
    return exit_codes.FAILED if faults or lost or mismatched else exit_codes.OK


def run(path: Path, sources: Sequence[SourceFile], kills: int, seed: int) -> list[Row]:
    """The parts that need a store of their own, in `path`; a row for each."""
    make_room(path)
    rows: list[Row] = []
    with steps() as progress:

        def task(name: str, total: int) -> Advance:
            number = progress.add_task(name, total=total)
            return lambda count: progress.advance(number, count)

        with rocketstore.open(
            path, durability="os", commit_log_file_size_bytes=SEGMENT_BYTES
        ) as store:
            mark(path)
            row, topics = ingest(store, sources, task("storing", len(sources)))
            rows.append(row)
        rows += kill_writers(path, kills, random.Random(seed), task("killing", kills))
        rows += _read_back(path, topics, task)
    return rows


def _read_back(path: Path, topics: dict[str, Stored], task: Task) -> list[Row]:
    with rocketstore.open(path, "r+") as store:
        files = sum(len(stored.files) for stored in topics.values())
        return [
            check_groups(store, topics, task("reading by group", len(topics))),
            check_keys(store, topics, task("reading by key", files)),
            check_times(store, topics, task("reading by time", len(topics))),
        ]
