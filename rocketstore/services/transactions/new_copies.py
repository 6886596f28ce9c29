"""Messages of a transaction as the log will have them, and the room that they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, cast

from rocketstore._native.put.batch_append import Rows
from rocketstore.errors import MessageNotFoundError, MessageRejectedError, MessageTooLargeError
from rocketstore.services.transactions.commit_records import record_bytes
from rocketstore.values.arguments import text, whole_number
from rocketstore.values.durability import queue_ids_of
from rocketstore.values.reserved_names import RESERVED_PROPERTIES, is_system_topic
from rocketstore.values.timestamps import timestamp_ms

if TYPE_CHECKING:
    from rocketstore._native.put.writer import Writer
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.log.queues.delayed_puts import Change, Changing, Delay
    from rocketstore.log.read.unique_ids import Claim
    from rocketstore.values.arguments import Body, Row, Wait
    from rocketstore.values.timestamps import Duration, Timestamp

__all__ = ["FIELDS", "NewCopy", "Room", "changing_of", "copy_of", "records_that_end"]

#: Bytes of a record without its body and what describes it: fixed fields, checksum, blank.
RECORD_ROOM: Final = 256
#: The same of the commit record.
HEAD_ROOM: Final = 512
#: Of a `NewMessage`, as `copy_of` takes them.
FIELDS: Final = (
    *("topic", "body", "queue_id", "tags", "keys", "properties", "flag", "born_time"),
    *("shard_key", "delay_level", "deliver_at", "deliver_after"),
)


@dataclass(slots=True, eq=False)
class NewCopy:
    """One message of a transaction, checked: as `Rows.take` takes it."""

    row: Row
    wait: Wait | None
    #: The queue offset that it has to get.
    expected: int | None = None
    #: Its topic and unique id, where it is put once.
    claim: Claim | None = None


def copy_of(
    engine: WritingEngine,
    name: str,
    *,
    topic: str,
    body: Body,
    queue_id: int,
    tags: str | None,
    keys: str | Sequence[str] | None,
    properties: Mapping[str, str] | None,
    flag: int,
    born_time: Timestamp | None,
    shard_key: str | None,
    delay_level: int | None,
    deliver_at: Timestamp | None,
    deliver_after: Duration | None,
    expected: int | None = None,
    unique_id: str | None = None,
) -> NewCopy:
    """A message as the log will have it; `name`: what it says of its place in the transaction."""
    writer = None
    if type(topic) is str and type(queue_id) is int:
        writer = engine.plain_writers.get((topic, queue_id))
    if writer is None or is_system_topic(topic):
        writer = _checked_writer(engine, topic, queue_id)
    for given in properties or ():
        if (reason := RESERVED_PROPERTIES.get(given)) is not None:
            raise MessageRejectedError(f"property {given!r} in a transaction: {reason}")
    claim = None if unique_id is None else engine.unique_ids.claim(topic, unique_id)
    if expected is not None:
        expected = whole_number("expected_queue_offset", expected, 0, 2**63 - 1)
    born_ms = engine.write.clock.now_ms()
    if born_time is not None:
        born_ms = timestamp_ms("born_time", born_time)
    rows = Rows()
    fields = (body, tags, keys, properties, flag, born_ms, shard_key)
    rows.add(writer, *fields, delay_level, deliver_at, deliver_after, unique_id, name)
    row, wait = rows.last()
    if expected is not None and wait is not None and wait[0] is not None:
        cast("Delay", wait[0]).check(expected)
    return NewCopy(row, wait, expected, claim)


def _checked_writer(engine: WritingEngine, topic: str, queue_id: int) -> Writer:
    topic = text("topic", topic)
    if is_system_topic(topic):
        raise MessageRejectedError(
            f"topic = {topic!r}: the store writes it itself; put to the topic that is meant, with "
            "deliver_at= if delayed, outside a transaction if prepared"
        )
    engine.check_topic(topic)
    return engine.plain_writer(topic, *queue_ids_of(queue_id, None))


class Room:
    """How large one transaction may become."""

    def __init__(self, engine: WritingEngine, transaction_id: str) -> None:
        self._engine, self._id = engine, transaction_id
        self._record_bytes = self._batch_bytes = HEAD_ROOM
        config, ring = engine.config, engine.write.ring
        halves = [config.commit_log_file_size_bytes] + ([] if ring is None else [ring.size // 2])
        self._record_most, self._batch_most = config.max_message_size_bytes, min(halves)

    def take(self, rows: Sequence[Row]) -> None:
        """Raises MessageTooLargeError where these would make it too large; it stays as it was then."""
        record, batch = self._record_bytes, self._batch_bytes
        for row in rows:
            own = record_bytes(row)
            record += own
            batch += 2 * own + RECORD_ROOM
        if record > self._record_most or batch > self._batch_most:
            self._refuse(rows, record, batch)
        self._record_bytes, self._batch_bytes = record, batch

    def _refuse(self, rows: Sequence[Row], record: int, batch: int) -> NoReturn:
        config, ring = self._engine.config, self._engine.write.ring
        segment = config.commit_log_file_size_bytes
        limits = [
            (record, "max_message_size_bytes", config.max_message_size_bytes, "open the store"),
            (batch, "commit_log_file_size_bytes", segment, "make a store"),
        ]
        if ring is not None:  # a batch takes half of it
            limits.append((2 * batch, "write_buffer_bytes", ring.size, "open the store"))
        needs, name, most, remedy = next(one for one in limits if one[0] > one[2])
        what = f"this message of {len(rows[0][6])} bytes"
        what = what if len(rows) == 1 else f"{len(rows)} messages more"
        raise MessageTooLargeError(
            f"transaction {self._id}: with {what} it needs {name} = {needs}, and there are {most}: "
            f"commit it in several transactions, or {remedy} with {name}={needs} or more"
        )


def changing_of(
    engine: WritingEngine, changes: Sequence[Change]
) -> AbstractContextManager[Changing | None]:
    """Holds what waits while a transaction changes it; gives None where it changes nothing."""
    changing = engine.delayed_puts.changing
    return changing(changes) if changes and changing is not None else nullcontext()


def records_that_end(transaction_id: str, changing: Changing | None) -> list[Row]:
    """The records that end what waits. MessageNotFoundError: some of it was delivered meanwhile."""
    if changing is None:
        return []
    if changing.gone:
        raise MessageNotFoundError(
            f"transaction {transaction_id}: no message waits any more with unique_id = "
            f"{changing.gone[0]!r}: it was delivered or cancelled meanwhile; nothing was stored"
        )
    return changing.rows(f"{transaction_id}.c")
