"""`rocketstore rebuild`: rebuilds queues and index of a store from its log."""

from __future__ import annotations

import dataclasses
import json

import click

from rocketstore.cli import exit_codes
from rocketstore.cli.output import bars, bytes_progress
from rocketstore.cli.parameters import STORE, index_shape
from rocketstore.tools import rebuild

__all__ = ["command"]


@click.command
@STORE
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Parts of the log that are worked on at a time; default: one a processor.",
)
@index_shape
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def command(
    store: str, workers: int | None, index_slots: int, index_entries: int, as_json: bool
) -> int:
    """Reads the whole log and rebuilds the consume queues and the index from it, on all processors.

    The result is byte for byte what the next open makes when both directories are removed. The old
    files stay until the new ones are complete. The store must not be open.

    \b
    Example:
      rocketstore rebuild data/orders
    """
    with bytes_progress() as progress:
        report = rebuild(
            store,
            workers=workers,
            progress=bars(progress),
            index_slots=index_slots,
            index_entries=index_entries,
        )
    click.echo(json.dumps(dataclasses.asdict(report)) if as_json else str(report))
    return exit_codes.OK
