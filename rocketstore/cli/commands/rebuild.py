"""`rocketstore rebuild`: makes queues and index of a store anew out of its log."""

from __future__ import annotations

import dataclasses
import json

import click

from rocketstore import tools
from rocketstore.cli import exit_codes
from rocketstore.cli.output import bars, bytes_progress
from rocketstore.cli.parameters import STORE, index_shape

__all__ = ["command"]


@click.command
@STORE
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Parts of the log at a time; default: one a processor.",
)
@index_shape
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def command(
    store: str, workers: int | None, index_slots: int, index_entries: int, as_json: bool
) -> int:
    """Reads the whole log and makes what is derived from it: byte for byte what the next open makes when both
    directories are removed, but on all processors and beside the old files, which stay until the new ones are
    whole. The store must not be open.

    \b
    Example:
      rocketstore rebuild data/orders
    """
    with bytes_progress() as progress:
        report = tools.rebuild(
            store,
            workers=workers,
            progress=bars(progress),
            index_slots=index_slots,
            index_entries=index_entries,
        )
    click.echo(json.dumps(dataclasses.asdict(report)) if as_json else str(report))
    return exit_codes.OK
