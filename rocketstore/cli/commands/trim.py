"""`rocketstore trim`: removes segments from the front of a log by a rule, or says which would go."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

import click

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.parameters import STORE, Moment, Span, file_options, open_to_read
from rocketstore.cli.standard_streams import printable

__all__ = ["command"]

if TYPE_CHECKING:
    _Size_ = click.ParamType[int]
else:
    _Size_ = click.ParamType  # generic in newer versions only

_SIZES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class _Size(_Size_):
    """A number of bytes: a whole number and nothing, K, M, G or T."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]{1,18})([KMGT]?)(?:i?B)?", value)
        if found is None or not int(found[1]):
            self.fail(f"{value!r} is no size above 0, such as 50G or 1048576", param, ctx)
        return int(found[1]) * _SIZES[found[2]]


@click.command
@STORE
@click.option("--before", type=Moment(), help="Messages stored before this time may go.")
@click.option("--max-age", type=Span(), help="Messages older than this may go: 12h, 7d, 2w.")
@click.option("--max-bytes", type=_Size(), help="The log may have no more bytes: 50G.")
@click.option(
    "--keep-unconsumed-by",
    multiple=True,
    metavar="GROUP",
    help='What this group has not consumed stays; "all": any group. May be given several times.',
)
@click.option("--keep-unshipped", is_flag=True, help="What no archive has stays.")
@click.option("--dry-run", is_flag=True, help="Only say what would go, and why the rest stays.")
@file_options
@click.option("--json", "as_json", is_flag=True, help="The plan as one JSON object.")
def command(
    store: str,
    before: datetime.datetime | int | None,
    max_age: datetime.timedelta | None,
    max_bytes: int | None,
    keep_unconsumed_by: tuple[str, ...],
    keep_unshipped: bool,
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
    if before is None and max_age is None and max_bytes is None:
        raise click.UsageError("nothing would go: give --before, --max-age or --max-bytes")
    if before is not None and max_age is not None:
        raise click.UsageError("--before and --max-age both say how old: give one of them")
    if "all" in keep_unconsumed_by and len(keep_unconsumed_by) > 1:
        raise click.UsageError("--keep-unconsumed-by all includes every other group")
    age = _age_of(before) if before is not None else max_age
    groups = "all" if keep_unconsumed_by == ("all",) else keep_unconsumed_by or None
    rule = rocketstore.Retention(
        max_age=age,
        max_bytes=max_bytes,
        keep_unconsumed_by=groups,
        keep_unshipped=keep_unshipped,
    )
    if dry_run:
        with open_to_read(store, **options) as reader:
            plan = reader.retention.plan(rule)
    else:
        options["deliver_delayed"] = False  # a trim delivers nothing
        with rocketstore.open(store, "r+", **options) as writer:
            plan = writer.retention.run(rule)
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
