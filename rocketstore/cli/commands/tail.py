"""`rocketstore tail`: the last messages of a topic, and those that come later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

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
from rocketstore.cli.standard_streams import as_text, check_reader, printable
from rocketstore.filters import sql_filter
from rocketstore.values import without_frames

if TYPE_CHECKING:
    from rocketstore import Consumer, CorruptRecordError, Message, Store

__all__ = ["command", "queue_messages"]

Damaged = Callable[[rocketstore.CorruptRecordError], object]
#: Longest wait for messages before a look at standard output, seconds.
LOOK_S: Final = 0.5


class Chosen(NamedTuple):
    """Which messages are shown: arguments of `Store.consumer`."""

    tags: str | None = None
    where: str | None = None


ALL: Final = Chosen()


def queue_messages(
    store: Store,
    topic: str,
    queue_id: int,
    on_damage: Callable[[CorruptRecordError], object],
    *,
    begin: int = 0,
    chosen: Chosen = ALL,
) -> Iterator[tuple[int, Message]]:
    """Messages from queue offset `begin` on, each with its offset in this queue, past damaged
    records, of which `on_damage` gets each. A message that is in several queues (multi dispatch)
    itself says only its offset in the first."""
    matches = None if chosen.where is None else sql_filter(chosen.where).matches
    with store.consumer(
        topic, queue_id=queue_id, offset=begin, tags=chosen.tags, reset="earliest"
    ) as consumer:
        while True:
            try:
                batch = consumer.poll(1)
            except rocketstore.CorruptRecordError as error:
                on_damage(error)
                consumer.seek(consumer.positions[queue_id] + 1, queue_id=queue_id)
                continue
            if not batch:
                return
            if matches is None or matches(batch[0].properties):
                yield consumer.positions[queue_id] - 1, batch[0]


def _step_over(
    store: Store, consumer: Consumer, chosen: Chosen, damage: CorruptRecordError
) -> None:
    """Moves a consumer of several queues past the damage that its last poll met. Polls each queue
    by itself to find the damaged one; raises the error again where none is."""
    for queue_id, begin in consumer.positions.items():
        with store.consumer(
            consumer.topic, queue_id=queue_id, offset=begin, tags=chosen.tags, reset="earliest"
        ) as alone:
            try:
                alone.poll(1)
            except rocketstore.CorruptRecordError as found:
                if found.physical_offset == damage.physical_offset:
                    return consumer.seek(alone.positions[queue_id] + 1, queue_id=queue_id)
    raise damage


def follow_topic(
    store: Store, consumer: Consumer, chosen: Chosen, show: Callable[[list[Message]], object]
) -> NoReturn:
    """`tail -f`: shows messages as they come, those of any writer. It ends with a signal, with an
    error, or when the reader of standard output goes. While a process recovers the store, it
    waits."""
    waits = False
    while True:
        check_reader()
        try:
            messages = consumer.poll(500, timeout_s=LOOK_S)
        except rocketstore.StoreRecoveringError as error:  # it has waited a second
            if not waits:
                who = f"{error.path}: {error.holder} recovers this store"
                click.echo(printable(f"rocketstore: {who}; waiting for it"), err=True)
            waits = True
            continue
        except rocketstore.CorruptRecordError as error:
            _step_over(store, consumer, chosen, error)
            click.echo(f"rocketstore: {error}", err=True)
            continue
        waits = False
        show(messages)


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
        if not follow and topic not in opened.topics(system=True):
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
