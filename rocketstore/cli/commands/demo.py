"""`rocketstore demo`: a store is filled, its writers are killed, everything is read back."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.table import Table

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.demo.directory import make_room, mark, scratch_directory
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
from rocketstore.cli.reference_stores import Comparison, compare, find_stores, open_reference

if TYPE_CHECKING:
    from rocketstore.cli.reference_stores import Expectation

__all__ = ["command", "compare_stores", "run"]

Advance = Callable[[int], object]
#: Makes a progress bar of a name and a total.
Task = Callable[[str, int], Advance]

#: Small enough that the log rolls several times.
SEGMENT_BYTES: Final = 64 * 1024 * 1024
MOST_FAULTS: Final = 20


@click.command
@click.option(
    "--stores",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Directory of packed stores that RocketMQ wrote, each with its expectation.",
)
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
def command(
    stores: Path | None, store: Path, kills: int, files: int | None, seed: int | None
) -> int:
    """Shows in two minutes what a store promises, and checks every byte of it.

    Stores every source line of the Python library. Kills writers at random points and compares what
    recovery finds with what was acknowledged. Reads everything back by consumer group, key and time
    and compares it with the files. With --stores it first reads stores that RocketMQ wrote. Exit
    code 1 if anything was lost or differs. The store stays for a look with the other commands.
    """
    faults = _show_references(stores)
    chosen = secrets.randbits(32) if seed is None else seed
    console().print(f"\nseed of the kills: {chosen} (again with --seed {chosen})")
    rows = run(store, find_sources(limit=files), kills, chosen)
    console().print("\n", table_of(rows), sep="")
    faults += [fault for row in rows for fault in row.faults]
    for fault in faults[:MOST_FAULTS]:
        click.echo(f"rocketstore: {fault}", err=True)
    lost = sum(row.lost for row in rows)
    mismatched = (
        sum(row.mismatched for row in rows) + len(faults) - sum(len(row.faults) for row in rows)
    )
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


def _show_references(directory: Path | None) -> list[str]:
    """Prints a row for each store of RocketMQ's, and gives all mismatches."""
    expectations = find_stores(directory) if directory is not None else []
    if not expectations:
        where = "was given" if directory is None else f"is in {directory}"
        console().print(f"no store written by RocketMQ {where}: left out (--stores DIR)")
        return []
    names = ("opened as", "messages", "queues", "index hits", "saved", "wrong")
    table = Table("store of RocketMQ", "what it is", *names, box=None, pad_edge=False)
    for column in table.columns[3:]:
        column.justify = "right"
    faults: list[str] = []
    with steps() as progress:
        task = progress.add_task("stores of RocketMQ", total=len(expectations))
        for expected in expectations:
            for found in compare_stores(expected):
                faults += found.mismatches
                numbers = (found.messages, found.queues, found.index_hits, found.saved)
                wrong = len(found.mismatches)
                table.add_row(
                    found.name, expected.text, found.mode, *(f"{n:,}" for n in (*numbers, wrong))
                )
            progress.advance(task)
    console().print(table)
    return faults


def compare_stores(expected: Expectation) -> list[Comparison]:
    """Opens fresh copies of one store read-only and for writing, and compares both."""
    found = []
    for mode in ("r", "rw"):
        with scratch_directory("rocketstore-demo-") as directory:
            root = expected.unpack(directory)
            try:
                with open_reference(expected, root, mode) as store:
                    found.append(compare(expected, store, mode))
            except (rocketstore.RocketStoreError, OSError, ValueError) as error:
                failed = Comparison(expected.name, mode)
                failed.differ(exit_codes.in_one_line(error))
                found.append(failed)
    return found
