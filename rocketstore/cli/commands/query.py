"""`rocketstore query`: messages by key."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from typing import Final, Literal

import click

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.output import print_messages
from rocketstore.cli.parameters import (
    STORE,
    Moment,
    commit_log_dir_option,
    format_option,
    open_to_read,
    read_topic,
    where_option,
)
from rocketstore.cli.standard_streams import as_text
from rocketstore.filters import sql_filter
from rocketstore.values import timestamp_ms

__all__ = ["command"]

#: Messages that are printed unless --limit or --all says how many.
SHOWN: Final = 32
#: Most messages that are counted of those that are not printed.
COUNTED: Final = 100_000
OFFSET = click.IntRange(0, 2**63 - 1)
#: What a `CorruptRecordError` says of a message that is not there at all.
_ABSENT = ("missing segment", "end")


@click.command
@STORE
@click.argument("topic", callback=read_topic)
@click.argument("key", callback=lambda _ctx, _param, value: as_text(value))
@click.option("--begin", type=Moment(), default=None, help="Stored then or later.")
@click.option("--end", type=Moment(), default=None, help="Stored then or earlier.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=None,
    help=f"At most this many.  [default: {SHOWN}]",
)
@click.option("--all", "everything", is_flag=True, help="All, however many.")
@click.option(
    "--order",
    type=click.Choice(["newest", "oldest"]),
    default="newest",
    show_default=True,
    help="Which come first.",
)
@click.option("--below", type=OFFSET, default=None, help="Only below this physical offset.")
@click.option("--above", type=OFFSET, default=None, help="Only above this physical offset.")
@where_option
@commit_log_dir_option
@format_option
def command(
    store: str,
    topic: str,
    key: str,
    begin: datetime.datetime | int | None,
    end: datetime.datetime | int | None,
    limit: int | None,
    everything: bool,
    order: Literal["newest", "oldest"],
    below: int | None,
    above: int | None,
    where: str | None,
    commit_log_dir: str,
    form: str | None,
) -> int:
    """Prints the messages of TOPIC that have KEY (or that unique id), newest first.

    Where there are more than it prints, it says how many on standard error, and how to go on.
    Times are ISO 8601 with a zone, or milliseconds since 1970. Exit code 3 when segments of the
    log are missing, or a record that the index names is damaged or missing; else 1 when there are
    none.

    \b
    Examples:
      rocketstore query data/orders orders o-17
      rocketstore query data/orders orders o-17 --begin 2026-01-01T00:00:00Z --format json
      rocketstore query data/orders orders o-17 --all --order oldest
    """
    times = [timestamp_ms("time", moment) for moment in (begin, end) if moment is not None]
    if times != sorted(times):
        raise click.UsageError(f"--end {end} is before --begin {begin}")
    if everything and limit is not None:
        raise click.UsageError("--all and --limit: give one of them")
    if below is not None and above is not None and below <= above:
        raise click.UsageError(f"--below {below} is not above --above {above}")
    shown = None if everything else limit or SHOWN
    damaged: list[rocketstore.CorruptRecordError] = []
    with open_to_read(store, commit_log_dir=commit_log_dir) as opened:
        found: Sequence[rocketstore.Message] = opened.query(
            topic,
            key,
            begin=begin,
            end=end,
            order=order,
            below=below,
            above=above,
            on_damage=damaged.append,
        )
        if where is not None:
            matches = sql_filter(where).matches
            found = [message for message in found if matches(message.properties)]
        print_messages(itertools.islice(found, shown), form)
        if shown is not None:
            _tell_of_more(found, shown, order)
        for error in damaged:
            what = "missing" if error.reason in _ABSENT else "damaged"
            click.echo(
                f"rocketstore: left out: the index has an entry for {key!r} whose message is "
                f"{what}: {error}",
                err=True,
            )
        missing = opened.recovery.missing
        known = topic in opened.topics(system=True)
    if missing and not found and not damaged:
        click.echo(
            f"rocketstore: no message of {topic} that is left has the key {key!r}; "
            "one may have been in the missing segments",
            err=True,
        )
    if not found and not known and not missing and not damaged:
        raise rocketstore.MessageNotFoundError(f"{store} has no topic {topic!r}")
    if not found and not missing and not damaged:
        click.echo(f"rocketstore: no message of {topic} has the key {key!r}", err=True)
        return exit_codes.FAILED
    return exit_codes.DAMAGED if missing or damaged else exit_codes.OK


def _tell_of_more(found: Sequence[rocketstore.Message], shown: int, order: str) -> None:
    more = sum(1 for _ in itertools.islice(found, shown, shown + COUNTED + 1))
    if more:
        count = f"more than {COUNTED}" if more > COUNTED else f"{more}"
        option = "--below" if order == "newest" else "--above"
        click.echo(
            f"rocketstore: {count} more have this key: {option} {found[shown - 1].physical_offset} "
            "goes on, --all prints all",
            err=True,
        )
