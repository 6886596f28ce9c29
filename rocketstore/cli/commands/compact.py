"""`rocketstore compact`: the latest message of each key, in a new store."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

import click

from rocketstore.cli import exit_codes
from rocketstore.cli.output import bars, bytes_progress
from rocketstore.cli.parameters import STORE, Span, file_options, open_to_read
from rocketstore.cli.standard_streams import as_text, printable

__all__ = ["command"]


@click.command
@STORE
@click.argument("into", type=click.Path(path_type=str))
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    help="The topic; may be given several times, each has keys of its own.",
)
@click.option(
    "--base", type=click.Path(path_type=str), help="Go on from this earlier compaction of STORE."
)
@click.option(
    "--grace",
    type=Span(zero=True),
    default="1d",
    show_default=True,
    help="A tombstone stays for so long after it was stored; 0s: for no time.",
)
@click.option(
    "--keep-tombstones",
    is_flag=True,
    help="Keep messages with an empty body; by default they delete their key.",
)
@click.option("--drop-without-key", is_flag=True, help="Leave out messages without a key.")
@click.option(
    "--new-offsets",
    is_flag=True,
    help="Number messages from 0 in each queue; RocketMQ 5 hides messages of queues with gaps.",
)
@click.option("--skip-damage", is_flag=True, help="Go on behind damage, and name it.")
@click.option("--dry-run", is_flag=True, help="Only count; write nothing.")
@file_options
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def command(
    store: str,
    into: str,
    topics: tuple[str, ...],
    base: str | None,
    grace: datetime.timedelta,
    keep_tombstones: bool,
    drop_without_key: bool,
    new_offsets: bool,
    skip_damage: bool,
    dry_run: bool,
    options: dict[str, Any],
    as_json: bool,
) -> int:
    """Writes the latest message of each key of a topic into a new store, the directory INTO.

    Messages keep their queue, queue offset, times, properties and order. A key is the text of KEYS
    as a whole, one for all queues of a topic. An empty body is a tombstone: it deletes its key, and
    goes itself after --grace. STORE does not change; a writer may work meanwhile, and what it
    stores later is left out. INTO must be new or empty; a run that is stopped leaves nothing there.
    Exit code 3 when --skip-damage went on after damage.

    \b
    Examples:
      rocketstore compact --topic profiles data/users data/users-latest
      rocketstore compact --base data/latest-1 --topic profiles data/users data/latest-2
      rocketstore compact --dry-run --topic profiles --topic prices data/users data/latest
    """
    with bytes_progress() as progress, open_to_read(store, **options) as source:
        report = source.compact(
            [as_text(topic) for topic in topics],
            into=into,
            base=base,
            tombstones=not keep_tombstones,
            grace=grace,
            without_key="drop" if drop_without_key else "keep",
            keep_offsets=not new_offsets,
            on_damage="skip" if skip_damage else "raise",
            dry_run=dry_run,
            progress=bars(progress),
        )
    shown = [json.dumps(dataclasses.asdict(report))] if as_json else str(report).splitlines()
    for line in shown:
        click.echo(printable(line))
    return exit_codes.DAMAGED if report.damage_count else exit_codes.OK
