"""`rocketstore promote`: makes a copy the master."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import click

from rocketstore.cli.parameters import STORE, file_options
from rocketstore.replication import promote

__all__ = ["command"]


@click.command
@STORE
@click.option(
    "--above",
    type=click.IntRange(0, 2**32 - 2),
    default=0,
    metavar="TERM",
    help="Begin a term after this one, the largest that any other machine shows.",
)
@click.option("--dry-run", is_flag=True, help="Only say the rank of this copy; take no lock.")
@file_options
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
def command(store: str, above: int, dry_run: bool, options: dict[str, Any], as_json: bool) -> None:
    """Makes a copy the master of its history, in a new term, where its log ends.

    Promote the copy with the largest rank (term, run, end), which --dry-run says: what another copy
    has that this one has not is cut off there, into quarantine, once it follows. The old master
    takes no puts any more as soon as a store that knows of the new term connects to it; stop it
    before if you can. Run on the old master itself, the command takes the place back. The store
    must not be open, also for --dry-run: the rank of one that goes on is old at once.

    \b
    Example:
      rocketstore promote data/copy
    """
    promotion = promote(store, above=above, dry_run=dry_run, **options)
    click.echo(json.dumps(dataclasses.asdict(promotion)) if as_json else str(promotion))
