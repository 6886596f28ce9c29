"""`rocketstore rebuild`: rebuilds queues and index of a store from its log."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from rocketstore.cli import exit_codes
from rocketstore.cli.output import bars, bytes_progress
from rocketstore.cli.parameters import STORE, allow_stale_crc_option, file_options
from rocketstore.tools import rebuild

__all__ = ["command"]


@click.command
@STORE
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Parts of the log that are worked on at a time; default: one a processor.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be lost; take no lock.")
@allow_stale_crc_option
@file_options
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def command(
    store: str,
    workers: int | None,
    dry_run: bool,
    allow_stale_crc: bool,
    options: dict[str, Any],
    as_json: bool,
) -> int:
    """Reads the whole log and rebuilds the consume queues and the index from it, on all processors.

    The result is byte for byte what the next open makes when both directories are removed. The old
    files stay until the new ones are complete. The store must not be open. Exit code 3 when the
    recovery before lost messages that the old queues knew, or set offsets of groups back, or when
    messages have no place in the new queues.

    \b
    Example:
      rocketstore rebuild data/orders
    """
    with bytes_progress() as progress:
        report = rebuild(
            store,
            workers=workers,
            dry_run=dry_run,
            progress=bars(progress),
            allow_stale_crc=allow_stale_crc,
            **options,
        )
    click.echo(json.dumps(dataclasses.asdict(report)) if as_json else str(report))
    told = report.lost_messages or report.offsets_set_back or report.unplaced_messages
    return exit_codes.DAMAGED if told else exit_codes.OK
