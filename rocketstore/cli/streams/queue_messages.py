"""One queue, message by message, past damaged records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import click

import rocketstore
from rocketstore.cli.standard_streams import check_reader, printable
from rocketstore.filters import sql_filter

if TYPE_CHECKING:
    from rocketstore import Consumer, CorruptRecordError, Message, Store

__all__ = ["ALL", "Chosen", "follow_topic", "queue_messages"]

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
    """Messages from queue offset `begin` on, each with its offset in this queue. A message that is
    in several queues (multi dispatch) itself says only its offset in the first. `on_damage` gets
    each damaged one."""
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
    """Shows messages as they come, those of any writer. It ends with a signal, with an error, or
    when the reader of standard output goes. While a process recovers the store, it waits."""
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
