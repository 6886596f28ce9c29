"""The record by which a transaction of several messages and offsets is committed.

It is a message of a system topic, and holds all that the transaction does: offsets, and its messages
as the log has them. A store that has it whole can do the rest at any time, and one that lacks it has
nothing of the transaction.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketstore._native.format.codec import decode_properties, encode_properties
from rocketstore.consuming.commit_journal import Moved, moves_in, moves_text
from rocketstore.consuming.offset_tables import split_key
from rocketstore.services.transactions.reading import Unreadable, messages_from
from rocketstore.values.bounded_json import LIMITS, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketstore._native.format.message import Message
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.values.arguments import Row

__all__ = [
    "COPY_PROPERTY",
    "PROGRESS_GROUP",
    "TOPIC",
    "CommitRecord",
    "commit_record_of",
    "head_bytes",
    "name_in",
    "record_bytes",
    "record_in",
    "record_text",
    "store_committed_offsets",
]

#: A system topic, by RocketMQ's prefix of such names; it has queue 0.
TOPIC: Final = "rmq_sys_rocketstore_transactions"
#: Its offset is the first commit record of which not all may be done.
PROGRESS_GROUP: Final = "CID_RMQ_SYS_rocketstore_transactions"
#: Property of each message that a transaction has put: the transaction's id and the message's
#: number in it.
COPY_PROPERTY: Final = "RS_TRANSACTION"
#: Magic, which no JSON begins with; id, count of offsets, count of messages.
HEAD: Final = struct.Struct("<4s8sII")
MAGIC: Final = b"RSTX"
#: Bytes of the topic, queue id, flag, sys flag, born time, bytes of the property text and the body.
MESSAGE: Final = struct.Struct("<HIiIqHI")


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A transaction as a whole. Of each message what `Rows.take` takes."""

    id: str
    copies: Sequence[Row]
    moves: Sequence[Moved]


def head_bytes(transaction_id: str, moves: Sequence[Moved], messages: int) -> bytes:
    """What comes before the messages, which `Rows.seal` encodes."""
    head = HEAD.pack(MAGIC, bytes.fromhex(transaction_id), len(moves), messages)
    return head + moves_text(moves)


def record_text(transaction_id: str, rows: Sequence[Row]) -> bytes:
    """A whole record without offsets, which a guest sends and a host takes apart."""
    parts = [head_bytes(transaction_id, (), len(rows))]
    for topic, queue_id, flag, sys_flag, born_ms, properties, body in rows:
        name = topic.encode()
        sizes = len(properties), len(body)
        parts.append(MESSAGE.pack(len(name), queue_id, flag, sys_flag, born_ms, *sizes))
        parts += name, properties, body
    return b"".join(parts)


def record_bytes(row: Row) -> int:
    """What a message takes of the record."""
    return MESSAGE.size + len(row[0].encode()) + len(row[5]) + len(row[6])


def name_in(row: Row) -> str:
    """What a message says of itself: its transaction, and its number there."""
    return decode_properties(row[5]).get(COPY_PROPERTY, "")


def commit_record_of(message: Message) -> CommitRecord | None:
    """None: a message of the topic that is no commit record of ours."""
    return record_in(bytes(message.body))


def record_in(data: bytes) -> CommitRecord | None:
    """None: bytes that are no commit record of ours."""
    try:
        return _binary(data) if data[: len(MAGIC)] == MAGIC else _json(data)
    except (KeyError, TypeError, ValueError, struct.error):
        return None


def _binary(data: bytes) -> CommitRecord | None:
    _, name, moved, copied = HEAD.unpack_from(data)
    copies: list[Row] = []
    moves, at = moves_in(data, HEAD.size, moved)

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size : at]

    for _ in range(copied):
        size, queue_id, flag, sys_flag, born_ms, *sizes = MESSAGE.unpack(take(MESSAGE.size))
        topic, properties, body = take(size).decode(), take(sizes[0]), take(sizes[1])
        copies.append((topic, queue_id, flag, sys_flag, born_ms, properties, body))
    whole = at == len(data) and len(moves) == moved
    return CommitRecord(name.hex(), copies, moves) if whole else None


def _json(data: bytes) -> CommitRecord | None:
    """The form of builds before 0.2.0: a line of JSON, then the bodies."""
    line, _, bodies = data.partition(b"\n")
    head: Any = parse_json(line, LIMITS["transaction"])
    if head["version"] != 1:
        return None
    copies, at = [], 0
    for number, row in enumerate(head["messages"]):
        topic, queue_id, tags, keys, given, flag, born_ms, shard_key, size = row
        named = {
            "KEYS": keys if keys is None or isinstance(keys, str) else " ".join(keys),
            "TAGS": tags,
            "__SHARDINGKEY": shard_key,
            COPY_PROPERTY: f"{head['id']}.{number}",
        }
        properties = {**given, **{name: text for name, text in named.items() if text is not None}}
        text, body = encode_properties(properties), bodies[at : at + size]
        copies.append((topic, queue_id, flag, 0, born_ms, text, body))
        at += size
    moves = [Moved(*move) for move in head["offsets"]]
    return CommitRecord(head["id"], copies, moves) if at == len(bodies) else None


# What a copy of a store does about transactions when it is promoted. The progress of transactions
# comes from the master, as offsets of groups, once the copy has all of the log that it speaks of.
# So it is right for the log as it was, and for any longer one.


def store_committed_offsets(engine: WritingEngine) -> None:
    """At the promotion of a copy: what transactions committed after the offsets came that the copy
    has. The offsets before them may never have come, so unlike after a crash these count whatever
    is stored.

    Raises:
        ReadFailedError, StoreBehindError: the commits cannot be read.
        OSError: the offsets cannot be stored.
    """
    moved: dict[str, dict[int, int]] = {}
    for record in _records(engine):
        for move in record.moves:
            pair = split_key(move.key)
            if pair is not None:
                row = moved.setdefault(move.key, engine.offsets.get(*pair))
                row[move.queue_id] = move.now
    engine.offsets.take_from_master(moved, whole=False)


def _records(engine: WritingEngine) -> Iterator[CommitRecord]:
    """Those that may not be done, in their order."""
    begin = engine.offsets.get(TOPIC, PROGRESS_GROUP).get(0, 0)
    for message in messages_from(engine.reader, TOPIC, 0, begin):
        record = None if isinstance(message, Unreadable) else commit_record_of(message)
        if record is not None:  # the next open as a master logs what it passes over
            yield record
