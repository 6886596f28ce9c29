"""The record by which a transaction of several messages and offsets is committed.

It is a message of a system topic, and holds all that the transaction does: a line of JSON that
describes messages and offsets, then the bodies. A store that has it whole can do the rest at any
time, and one that lacks it has nothing of the transaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketstore.consuming.commit_journal import Moved
from rocketstore.consuming.offset_tables import split_key
from rocketstore.services.transactions.reading import Unreadable, messages_from
from rocketstore.values.bounded_json import LIMITS, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketstore._native.format.message import Message
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = [
    "COPY_PROPERTY",
    "PROGRESS_GROUP",
    "TOPIC",
    "CommitRecord",
    "NewCopy",
    "commit_record_of",
    "described",
    "store_committed_offsets",
]

#: A system topic, by RocketMQ's prefix of such names; it has queue 0.
TOPIC: Final = "rmq_sys_rocketstore_transactions"
#: Its offset is the first commit record of which not all may be done.
PROGRESS_GROUP: Final = "CID_RMQ_SYS_rocketstore_transactions"
#: Property of each message that a transaction has put: the transaction's id and the message's
#: number in it.
COPY_PROPERTY: Final = "RS_TRANSACTION"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class NewCopy:
    """One message of a transaction; fields as the arguments of a put."""

    topic: str
    queue_id: int
    tags: str | None
    keys: str | Sequence[str] | None
    properties: dict[str, str]
    flag: int
    born_ms: int
    shard_key: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A transaction as a whole."""

    id: str
    copies: tuple[NewCopy, ...]
    moves: tuple[Moved, ...]

    def body(self) -> bytes:
        head = {
            "version": VERSION,
            "id": self.id,
            "offsets": self.moves,
            "messages": [described(copy) for copy in self.copies],
        }
        parts = [json.dumps(head).encode("ascii"), b"\n", *(copy.body for copy in self.copies)]
        return b"".join(parts)


def described(copy: NewCopy) -> list[object]:
    """All of a message but its body, of which it gives the size."""
    return [
        *(copy.topic, copy.queue_id, copy.tags, copy.keys, copy.properties, copy.flag),
        *(copy.born_ms, copy.shard_key, len(copy.body)),
    ]


def commit_record_of(message: Message) -> CommitRecord | None:
    """None: a message of the topic that is no commit record of ours."""
    line, _, bodies = bytes(message.body).partition(b"\n")
    try:
        head: Any = parse_json(line, LIMITS["transaction"])
        if head["version"] != VERSION:
            return None
        copies, at = [], 0
        for row in head["messages"]:
            topic, queue_id, tags, keys, properties, flag, born_ms, shard_key, size = row
            place, named = (topic, queue_id), (tags, keys, properties, flag, born_ms, shard_key)
            copies.append(NewCopy(*place, *named, bodies[at : at + size]))
            at += size
        moves = tuple(Moved(*move) for move in head["offsets"])
        whole = at == len(bodies)
        return CommitRecord(head["id"], tuple(copies), moves) if whole else None
    except (KeyError, TypeError, ValueError):
        return None


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
