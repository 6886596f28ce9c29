"""`rocketstore tail`: the last messages of a topic, and those that come later."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

import rocketstore
from rocketstore.cli import exit_codes
from rocketstore.cli.output import print_messages
from rocketstore.cli.parameters import (
    QUEUE_ID,
    STORE,
    commit_log_dir_option,
    format_option,
    open_to_read,
    read_topic,
    where_option,
)
from rocketstore.cli.standard_streams import as_text
from rocketstore.cli.streams.queue_messages import Chosen, follow_topic, queue_messages
from rocketstore.values import without_frames

if TYPE_CHECKING:
    from rocketstore import Message, Store

__all__ = ["command"]

Damaged = Callable[[rocketstore.CorruptRecordError], object]


def _tag(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuses what no message can have as its tag."""
    value = None if value is None else as_text(value)
    words = [] if value is None else value.split("||")
    lone = any("\ud800" <= sign <= "\udfff" for sign in value or "")  # bytes that are no text
    if lone or not all(map(str.strip, words)):
        raise click.BadParameter(f"{value!r}: a tag, or several with || between them")
    return value


@click.command
@STORE
@click.argument("topic", callback=read_topic)
@click.option("--queue-id", type=QUEUE_ID, default=None, help="Only this queue.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="How many of the last messages.",
)
@click.option("-f", "--follow", is_flag=True, help="Wait for more messages until Ctrl-C.")
@click.option("--tag", default=None, callback=_tag, help="Only messages with this tag.")
@where_option
@commit_log_dir_option
@format_option
def command(
    store: str,
    topic: str,
    queue_id: int | None,
    lines: int,
    follow: bool,
    tag: str | None,
    where: str | None,
    commit_log_dir: str,
    form: str | None,
) -> int:
    """Prints the last messages of TOPIC, oldest first.

    With -f it also prints messages that come later, and waits for a topic or queue that does not
    exist yet. Damaged records and queues that cannot be read are left out and named after the last
    messages, and the exit code is 3.

    \b
    Examples:
      rocketstore tail data/orders orders -n 3
      rocketstore tail data/orders orders -f --format '%T %k %s'
      rocketstore tail data/orders orders --where "price > 10 AND region = 'eu'"
      rocketstore tail data/orders orders -n 1000 --format json | jq .body
    """
    chosen = Chosen(tag, where)
    faults: dict[int, rocketstore.CorruptRecordError] = {}
    unread: list[rocketstore.ReadFailedError] = []

    def damaged(error: rocketstore.CorruptRecordError) -> None:
        faults[error.physical_offset] = without_frames(error)

    with open_to_read(store, commit_log_dir=commit_log_dir, index_enabled=False) as opened:
        missing = opened.recovery.missing
        if not follow and topic not in opened.topics():
            raise rocketstore.MessageNotFoundError(f"{store} has no topic {topic!r}")
        if not follow and queue_id is not None and queue_id not in opened.queues(topic):
            numbers = ", ".join(map(str, opened.queues(topic)))
            raise rocketstore.MessageNotFoundError(
                f"topic {topic!r} has no queue {queue_id}; its queues: {numbers}"
            )
        # The consumer starts at the end before the last messages are looked up: none is lost
        # between the two, and none is shown twice.
        consumer = opened.consumer(
            topic, queue_id=queue_id, offset="latest", tags=tag, where=where, reset="earliest"
        )
        with consumer:
            ends = dict(consumer.positions)
            print_messages(_last(opened, topic, ends, lines, chosen, damaged, unread), form)
            for error in faults.values():
                click.echo(f"rocketstore: {error}", err=True)
            for failed in unread:
                click.echo(f"rocketstore: {exit_codes.in_one_line(failed)}", err=True)
            if follow:
                follow_topic(opened, consumer, chosen, partial(print_messages, form=form))
    return exit_codes.DAMAGED if faults or unread or missing else exit_codes.OK


def _last(
    store: Store,
    topic: str,
    ends: dict[int, int],
    count: int,
    chosen: Chosen,
    damaged: Damaged,
    unread: list[rocketstore.ReadFailedError],
) -> list[Message]:
    """The `count` newest messages before `ends` (queue offsets by queue), in log order. Errors of
    queues that cannot be read, as one whose file was cut, go to `unread`."""
    found: list[Message] = []
    for queue_id, end in ends.items():
        try:
            found += _last_of_queue(store, topic, queue_id, end, count, chosen, damaged)
        except rocketstore.ReadFailedError as error:
            unread.append(without_frames(error))
    # Messages of one inner batch share an offset, and keep the order of their queue.
    found.sort(key=lambda message: message.physical_offset)
    return found[-count:] if count else []


def _last_of_queue(
    store: Store,
    topic: str,
    queue_id: int,
    end: int,
    count: int,
    chosen: Chosen,
    damaged: Damaged,
) -> list[Message]:
    """Steps back further and further while a filter leaves too few."""
    minimum = store.min_queue_offset(topic, queue_id)
    back = count
    while True:
        begin = max(minimum, end - back)
        if begin >= end:
            return []
        found = []
        for queue_offset, message in queue_messages(
            store, topic, queue_id, damaged, begin=begin, chosen=chosen
        ):
            if queue_offset >= end:
                break
            found.append(message)
        if len(found) >= count or begin == minimum:
            return found[-count:] if count else []
        back *= 4
