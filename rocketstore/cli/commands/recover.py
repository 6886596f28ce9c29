"""`rocketstore recover`: brings a store that was not stopped cleanly to order, and says what it
found."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import click
from rich.table import Table

import rocketstore
from rocketstore import (
    MissingSegmentsError,
    RecoveryReport,
    Store,
    StoreBehindError,
    StoreLockedError,
)
from rocketstore.cli import exit_codes
from rocketstore.cli.hints import in_commands
from rocketstore.cli.output import bars, bytes_progress, console, table
from rocketstore.cli.parameters import STORE, file_options
from rocketstore.cli.standard_streams import printable

__all__ = ["command"]


@click.command
@STORE
@click.option(
    "--force",
    is_flag=True,
    help="Continue although segments of the log are missing: what they held is lost then.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done, from a copy in memory.")
@file_options
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def command(store: str, force: bool, dry_run: bool, options: dict[str, Any], as_json: bool) -> int:
    """Recovers a store as the next open for writing would, with a progress bar, and closes it
    cleanly.

    Finds the end of the log and makes it durable. Copies what has to be cut or cannot be read to
    rocketstore/quarantine. Brings queues and index up to the end. Compares the queues with the
    whole log, and makes the units that they lack. A run that was killed is resumed
    by the next one. Names the messages that are lost, by topic, queue and queue offset, where the
    queues knew them, and the offsets of consumer groups that are set back; the old
    consumerOffset.json is kept in rocketstore/quarantine. Names the messages that have no place in
    their queue, since something else lies there. Says where a file of stored offsets is gone, damaged or
    an older copy. Exit code 3 for these, when anything that may have been acknowledged cannot be
    read, or an offset was set back.

    \b
    Example:
      rocketstore recover data/orders
    """
    with bytes_progress() as progress:
        opened = (_looked_at if dry_run else _recovered)(
            store,
            force=force,
            on_recovery=bars(progress),
            **options,
        )
    with opened:
        report = opened.recovery
        salvage = _salvage(opened, report)
    if as_json:
        document = {**dataclasses.asdict(report), "lost": report.lost, "topics": salvage}
        document["cut_records"] = report.cut_records
        document.pop("checkpoint")
        click.echo(json.dumps(document))
    else:
        click.echo(in_commands(str(report)))
        if report.begin < report.start:
            click.echo(
                f"[{report.begin}, {report.start}) was on the disk before, and is not read here "
                "for damage: verify does"
            )
        console().print(_table(salvage))
    if dry_run:
        click.echo("nothing was changed: this was a dry run", err=True)
    offsets = report.offsets_set_back or report.offsets_in_doubt
    return (
        exit_codes.DAMAGED if report.lost or offsets or report.unplaced_messages else exit_codes.OK
    )


def _recovered(store: str, **options: Any) -> Store:
    options["deliver_delayed"] = False
    return rocketstore.open(store, "r+", check_queues=True, **options)


def _looked_at(store: str, *, force: bool, **options: Any) -> Store:
    """Recovered in memory, or refused as the recovery itself would be."""
    opened = rocketstore.open(store, "r", force=True, check_queues=True, **options)
    report = opened.recovery
    if report.mode == "following":
        opened.close()
        raise StoreLockedError(store, "the process that has it open for writing")
    if report.missing and not force:
        opened.close()
        raise MissingSegmentsError(f"{store}: {'; '.join(report.missing)}")
    return opened


def _salvage(store: Store, report: RecoveryReport) -> dict[str, dict[str, int]]:
    """For each topic: messages that its queues have, damaged ranges and cut records that name
    it."""
    damaged = Counter(topic for damage in report.damage for topic in damage.topics)
    cut = Counter(topic for valid_run in report.valid_runs for topic in valid_run.topics)
    topics = sorted({*store.topics(system=True), *damaged, *cut})
    return {
        topic: {
            "queues": len(store.queues(topic)),
            "messages": sum(_messages(store, topic, queue_id) for queue_id in store.queues(topic)),
            "damaged_ranges": damaged[topic],
            "cut_ranges": cut[topic],
        }
        for topic in topics
    }


def _messages(store: Store, topic: str, queue_id: int) -> int:
    """Those that can be read: none of a queue that takes no units, which the report names."""
    try:
        return store.max_queue_offset(topic, queue_id) - store.min_queue_offset(topic, queue_id)
    except StoreBehindError:
        return 0


def _table(salvage: dict[str, dict[str, int]]) -> Table:
    columns = ("queues", "messages", "damaged_ranges", "cut_ranges")
    made = table("topic", numbers=(name.replace("_", " ") for name in columns))
    for topic, counts in salvage.items():
        made.add_row(printable(topic), *(f"{counts[name]:,}" for name in columns))
    return made
