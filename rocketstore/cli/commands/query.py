"""`rocketstore query`: messages by key."""

from __future__ import annotations

import datetime

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
    topic_name,
)
from rocketstore.values import timestamp_ms

__all__ = ["command"]


@click.command
@STORE
@click.argument("topic", callback=topic_name(255))
@click.argument("key")
@click.option("--begin", type=Moment(), default=None, help="Stored then or later.")
@click.option("--end", type=Moment(), default=None, help="Stored then or earlier.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=32,
    show_default=True,
    help="At most this many.",
)
@commit_log_dir_option
@format_option
def command(
    store: str,
    topic: str,
    key: str,
    begin: datetime.datetime | int | None,
    end: datetime.datetime | int | None,
    limit: int,
    commit_log_dir: str,
    form: str | None,
) -> int:
    """Prints the messages of TOPIC that have KEY (or that unique id), newest first.

    Times are ISO 8601 with a zone, or milliseconds since 1970. Exit code 1 when there are none,
    3 when segments of the log are missing.

    \b
    Examples:
      rocketstore query data/orders orders o-17
      rocketstore query data/orders orders o-17 --begin 2026-01-01T00:00:00Z --format json
    """
    times = [timestamp_ms("time", moment) for moment in (begin, end) if moment is not None]
    if times != sorted(times):
        raise click.UsageError(f"--end {end} is before --begin {begin}")
    most = max(64, limit)
    with open_to_read(store, commit_log_dir=commit_log_dir, max_query_results=most) as opened:
        found = opened.query(topic, key, begin=begin, end=end, limit=limit)
        print_messages(found, form)
        missing = opened.recovery.missing
        known = topic in opened.topics()
    if not found and not known:
        raise rocketstore.MessageNotFoundError(f"{store} has no topic {topic!r}")
    if not found:
        click.echo(f"rocketstore: no message of {topic} has the key {key!r}", err=True)
        return exit_codes.FAILED
    return exit_codes.DAMAGED if missing else exit_codes.OK
