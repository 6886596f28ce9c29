"""`rocketstore recover`: brings a store that was not stopped cleanly to order, and says what it
found."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING

import click

import rocketstore
from rocketstore import RecoveryReport, Store
from rocketstore.cli import exit_codes
from rocketstore.cli.hints import in_commands
from rocketstore.cli.output import bars, bytes_progress, console, table
from rocketstore.cli.parameters import STORE, index_shape
from rocketstore.cli.standard_streams import printable

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["command"]


@click.command
@STORE
@click.option(
    "--force",
    is_flag=True,
    help="Continue although segments of the log are missing: what they held is lost then.",
)
@index_shape
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def command(store: str, force: bool, index_slots: int, index_entries: int, as_json: bool) -> int:
    """Recovers a store as the next open for writing would, with a progress bar, and closes it
    cleanly.

    Finds the end of the log and makes it durable. Copies what has to be cut or cannot be read to
    rocketstore/quarantine. Brings queues and index up to the end. A run that was killed is resumed
    by the next one. Exit code 3 when anything that may have been acknowledged cannot be read.

    \b
    Example:
      rocketstore recover data/orders
    """
    with bytes_progress() as progress:
        opened = rocketstore.open(
            store,
            "r+",
            force=force,
            on_recovery=bars(progress),
            index_slots=index_slots,
            index_entries=index_entries,
        )
    with opened:
        report = opened.recovery
        salvage = _salvage(opened, report)
    if as_json:
        document = {**dataclasses.asdict(report), "lost": report.lost, "topics": salvage}
        document.pop("checkpoint")
        click.echo(json.dumps(document))
    else:
        click.echo(in_commands(str(report)))
        console().print(_table(salvage))
    return exit_codes.DAMAGED if report.lost else exit_codes.OK


def _salvage(store: Store, report: RecoveryReport) -> dict[str, dict[str, int]]:
    """For each topic: messages that its queues have, damaged ranges and cut records that name
    it."""
    damaged = Counter(topic for damage in report.damage for topic in damage.topics)
    cut = Counter(topic for valid_run in report.valid_runs for topic in valid_run.topics)
    topics = sorted({*store.topics(), *damaged, *cut})
    return {
        topic: {
            "queues": len(store.queues(topic)),
            "messages": sum(
                store.max_queue_offset(topic, queue_id) - store.min_queue_offset(topic, queue_id)
                for queue_id in store.queues(topic)
            ),
            "damaged_ranges": damaged[topic],
            "cut_ranges": cut[topic],
        }
        for topic in topics
    }


def _table(salvage: dict[str, dict[str, int]]) -> Table:
    columns = ("queues", "messages", "damaged_ranges", "cut_ranges")
    made = table("topic", numbers=(name.replace("_", " ") for name in columns))
    for topic, counts in salvage.items():
        made.add_row(printable(topic), *(f"{counts[name]:,}" for name in columns))
    return made
