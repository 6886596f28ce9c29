"""`rocketstore query`: messages by key."""

from __future__ import annotations

import datetime

import click

from rocketstore.cli.output import print_messages
from rocketstore.cli.parameters import STORE, Moment, format_option, open_to_read

__all__ = ["command"]


@click.command(short_help="Messages by key.")
@STORE
@click.argument("topic")
@click.argument("key")
@click.option("--begin", type=Moment(), default=None, help="Stored then or later.")
@click.option("--end", type=Moment(), default=None, help="Stored then or before.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=32,
    show_default=True,
    help="At most so many.",
)
@format_option
def command(
    store: str,
    topic: str,
    key: str,
    begin: datetime.datetime | int | None,
    end: datetime.datetime | int | None,
    limit: int,
    form: str | None,
) -> int:
    """Prints the messages of TOPIC that have KEY (or that unique id), newest first.

    Times are ISO 8601 with a zone, or milliseconds since 1970. Exit code 1 when there are none.

    \b
    Examples:
      rocketstore query data/orders orders o-17
      rocketstore query data/orders orders o-17 --begin 2026-01-01T00:00:00Z --format json
    """
    with open_to_read(store, max_query_results=max(64, limit)) as opened:
        found = opened.query(topic, key, begin=begin, end=end, limit=limit)
        print_messages(found, form)
    if not found:
        click.echo(f"rocketstore: no message of {topic} has the key {key!r}", err=True)
    return 0 if found else 1
