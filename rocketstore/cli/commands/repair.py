"""`rocketstore repair`: makes a damaged log safe for RocketMQ."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from rocketstore.cli import exit_codes
from rocketstore.cli.hints import in_commands
from rocketstore.cli.output import bars, bytes_progress
from rocketstore.cli.parameters import STORE, file_options
from rocketstore.tools import repair

__all__ = ["command"]


@click.command
@STORE
@click.option("--dry-run", is_flag=True, help="Only say what would be done; take no lock.")
@click.option("--force", is_flag=True, help="Continue although segments of the log are missing.")
@click.option(
    "--fill-missing", is_flag=True, help="Give up segments that are missing between others."
)
@file_options
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def command(
    store: str,
    dry_run: bool,
    force: bool,
    fill_missing: bool,
    options: dict[str, Any],
    as_json: bool,
) -> int:
    """Reads every record, and overwrites damage with filler records that no consumer is given.

    When RocketMQ starts, it deletes everything after the first damaged record; after a repair it
    does not. The old bytes are copied to rocketstore/quarantine first. Queue offsets stay, and
    consumers pass over the lost ones. The store must not be open. Exit code 3 when damage is left, or
    when the recovery before cut messages or set offsets of consumer groups back, or messages have no
    place in their queue.

    \b
    Example:
      rocketstore repair --dry-run data/orders
    """
    with bytes_progress() as progress:
        report = repair(
            store,
            dry_run=dry_run,
            force=force,
            fill_missing=fill_missing,
            progress=bars(progress),
            **options,
        )
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(report), "ok": report.ok, "lost": report.lost}))
    else:
        for one in report.ranges:
            click.echo(str(one))
        for line in report.of_recovery():
            click.echo(in_commands(line))
        for path in report.quarantine:
            click.echo(f"copy in {path}")
        click.echo(str(report))
    return exit_codes.OK if report.ok and not report.lost else exit_codes.DAMAGED
