"""`rocketstore trim`: removes segments from the front of a log by a rule, or says which would go."""

from __future__ import annotations

import dataclasses
import datetime
import json
import time
from typing import Any

import click

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.parameters import (
    STORE,
    Moment,
    file_options,
    goes_by,
    open_to_read,
    rule_options,
)
from rocketstore.cli.standard_streams import printable

__all__ = ["command"]


@click.command
@STORE
@click.option("--before", type=Moment(), help="Messages stored before this time may go.")
@rule_options
@click.option("--dry-run", is_flag=True, help="Only say what would go, and why the rest stays.")
@file_options
@click.option("--json", "as_json", is_flag=True, help="The plan as one JSON object.")
def command(
    store: str,
    before: datetime.datetime | int | None,
    rule: dict[str, Any],
    dry_run: bool,
    options: dict[str, Any],
    as_json: bool,
) -> int:
    """Removes whole segments from the front of the log, oldest first, and files of queues and of
    the index with them.

    A segment goes when its newest message is older than --before or --max-age says, or when the
    log has more than --max-bytes. The last segment stays, and so does what is not on the disk or
    not in its queue. Messages that wait for a time of their own are put again at the end of the
    log, where they would hold what goes. Names each segment with the reason why it goes or stays.
    With --dry-run takes no lock; a writer may work meanwhile.

    \b
    Examples:
      rocketstore trim --dry-run --max-age 7d data/orders
      rocketstore trim --max-bytes 50G --keep-unshipped data/orders
      rocketstore trim --before 2026-01-01T00:00:00Z --keep-unconsumed-by billing data/orders
    """
    if before is not None:
        if rule["max_age"] is not None:
            raise click.UsageError("--before and --max-age both say how old: give one of them")
        rule["max_age"] = _age_of(before)
    if not goes_by(rule):
        raise click.UsageError("nothing would go: give --before, --max-age or --max-bytes")
    asked = rocketstore.Retention(**rule)
    if dry_run:
        with open_to_read(store, **options) as reader:
            plan = reader.retention.plan(asked)
    else:
        options["deliver_delayed"] = False  # a trim delivers nothing
        with rocketstore.open(store, "r+", **options) as writer:
            plan = writer.retention.run(asked)
    for line in [_as_json(plan)] if as_json else str(plan).splitlines():
        click.echo(printable(line))
    return exit_codes.OK


def _age_of(before: datetime.datetime | int) -> datetime.timedelta:
    """How long ago a time is."""
    when_s = before / 1000 if isinstance(before, int) else before.timestamp()
    try:
        age = datetime.timedelta(seconds=time.time() - when_s)
    except OverflowError:
        age = datetime.timedelta.max
    if age <= datetime.timedelta():
        raise click.BadParameter(f"{before} is to come", param_hint="--before")
    return age


def _as_json(plan: rocketstore.RetentionPlan) -> str:
    return json.dumps({**dataclasses.asdict(plan), "count": plan.count, "bytes": plan.bytes})
