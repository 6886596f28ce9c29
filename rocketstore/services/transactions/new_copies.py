"""What a transaction may put, and the room that it takes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from rocketstore.errors import MessageNotFoundError, MessageRejectedError, MessageTooLargeError
from rocketstore.values.arguments import text
from rocketstore.values.durability import queue_ids_of
from rocketstore.values.plural import counted
from rocketstore.values.reserved_names import RESERVED_PROPERTIES, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.put.writer import Writer
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.log.queues.delayed_puts import Change, Changing
    from rocketstore.values.arguments import Row

__all__ = [
    "FIELDS",
    "changing_of",
    "check_properties",
    "check_size",
    "checked_writer",
    "records_that_end",
]

#: Fields of a `NewMessage`, in the order in which `Rows.add` takes them.
FIELDS: Final = (
    *("body", "tags", "keys", "properties", "flag", "born_time", "shard_key"),
    *("delay_level", "deliver_at", "deliver_after"),
)
#: What `changing_of` gives where a transaction cancels and moves no delayed message.
NO_CHANGES: Final = nullcontext()


def checked_writer(engine: WritingEngine, topic: str, queue_id: int) -> Writer:
    """The writer of a queue that a transaction may put to."""
    topic = text("topic", topic)
    if is_system_topic(topic):
        raise MessageRejectedError(
            f"topic = {topic!r}: the store writes it itself; put to the topic that is meant, with "
            "deliver_at= if delayed, outside a transaction if prepared"
        )
    engine.check_topic(topic)
    return engine.plain_writer(topic, *queue_ids_of(queue_id, None))


def check_properties(properties: Mapping[str, str]) -> None:
    for given in properties:
        if (reason := RESERVED_PROPERTIES.get(given)) is not None:
            raise MessageRejectedError(f"property {given!r} in a transaction: {reason}")


def check_size(engine: WritingEngine, name: str, needs: tuple[int, int], count: int) -> None:
    """MessageTooLargeError: the commit record, or the batch with it, `needs` too many bytes since `count`
    messages came to it."""
    (record, batch), config, ring = needs, engine.config, engine.write.ring
    if record > config.max_message_size_bytes:
        wanted, option, most = record, "max_message_size_bytes", config.max_message_size_bytes
    elif batch > config.commit_log_file_size_bytes:
        wanted, option, most = (
            batch,
            "commit_log_file_size_bytes",
            config.commit_log_file_size_bytes,
        )
    elif ring is not None and 2 * batch > ring.size:  # a batch takes half of it
        wanted, option, most = 2 * batch, "write_buffer_bytes", ring.size
    else:
        return
    remedy = "make a store" if option == "commit_log_file_size_bytes" else "open the store"
    raise MessageTooLargeError(
        f"transaction {name}: with {counted(count, 'message')} more it needs {option} = {wanted}, "
        f"and there are {most}: commit it in several transactions, or {remedy} with "
        f"{option}={wanted} or more"
    )


def changing_of(
    engine: WritingEngine, changes: Sequence[Change]
) -> AbstractContextManager[Changing | None]:
    """Holds what waits while a transaction changes it; gives None where it changes nothing."""
    changing = engine.delayed_puts.changing if changes else None
    return NO_CHANGES if changing is None else changing(changes)


def records_that_end(
    transaction_id: str, changing: Changing, first: Mapping[tuple[str, str], PutResult]
) -> list[Row]:
    """The records that end what waits. `first`: of messages that are there already.

    MessageNotFoundError: some of it was delivered meanwhile. MessageRejectedError: the transaction
    would leave a message out for one that it cancels."""
    if changing.gone:
        raise MessageNotFoundError(
            f"transaction {transaction_id}: no message waits any more with unique_id = "
            f"{changing.gone[0]!r}: it was delivered or cancelled meanwhile; nothing was stored"
        )
    for topic, unique_id in changing.cancelled:
        if (topic, unique_id) in first and first[topic, unique_id].due_time is not None:
            raise MessageRejectedError(
                f"unique_id = {unique_id!r}: the transaction cancels what waits with it in topic "
                f"{topic!r}, and would leave out its own message with it; put that in the next "
                "transaction, or use reschedule; nothing was stored"
            )
    return changing.rows(f"{transaction_id}.c")
