"""Half messages, op messages and committed copies, as RocketMQ stores them (format.md 11)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rocketstore.values.system_flags import LONG_ADDRESSES, TRANSACTION_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketstore._native.format.message import Message
    from rocketstore.puts.put_message import MessageFields

__all__ = [
    "COMMITTED",
    "DEAD_TOPIC",
    "HALF_TOPIC",
    "OP_TOPIC",
    "PROGRESS_GROUP",
    "checks_of",
    "copy_fields",
    "first_copy_of",
    "half_properties",
    "immunity_ms_of",
    "op_body",
    "real_place",
    "settled_by",
]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DEAD_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
#: Its offsets are how far half and op messages are settled.
PROGRESS_GROUP: Final = "CID_RMQ_SYS_TRANS"
#: Transaction type of a committed copy.
COMMITTED: Final = 0x8
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def half_properties(
    given: Mapping[str, str], topic: str, queue_id: int, group: str, unique_id: str
) -> dict[str, str]:
    """Properties of a half message: the sender's, and where its copy goes."""
    return {
        **given,
        "TRAN_MSG": "true",
        "PGROUP": group,
        "UNIQ_KEY": unique_id,
        "__transactionId__": unique_id,
        "REAL_TOPIC": topic,
        "REAL_QID": str(queue_id),
    }


def real_place(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Topic and queue of the copy; None: a message of the half topic that names none."""
    topic = properties.get("REAL_TOPIC", "")
    queue_id = _number(properties, "REAL_QID")
    return None if not topic or queue_id is None else (topic, queue_id)


def checks_of(properties: Mapping[str, str]) -> int:
    """How often RocketMQ had asked when it put this copy of a half message."""
    return _number(properties, "TRANSACTION_CHECK_TIMES") or 0


def first_copy_of(half: Message) -> int | None:
    """Queue offset of the half message that this one is a copy of; None: it is the first one."""
    return _number(half.properties, "TRAN_PREPARED_QUEUE_OFFSET")


def immunity_ms_of(properties: Mapping[str, str]) -> int | None:
    """The age, in ms, below which its producer wants not to be asked; None: it does not say."""
    seconds = _number(properties, "CHECK_IMMUNITY_TIME_IN_SECONDS")
    return None if seconds is None else seconds * 1000


def copy_fields(half: Message, *, committed: bool) -> MessageFields:
    """Fields of the message that is put for a half message: the commit, or that of the dead topic.

    Both name the half message, so that a second put can find the first.
    """
    kept = half.sys_flag & ~(TRANSACTION_TYPE | LONG_ADDRESSES)
    return {
        "properties": dict(half.properties),
        "flag": half.flag,
        "sys_flag": kept | (COMMITTED if committed else 0),
        "born_time": half.born_timestamp_ms,
        "born_host": half.born_host,
        "reconsume_times": half.reconsume_times,
        "prepared_transaction_offset": half.physical_offset,
    }


def op_body(queue_offsets: list[int]) -> bytes:
    """Without a comma at the end, so RocketMQ 4 reads a single offset, too."""
    return ",".join(map(str, queue_offsets)).encode("ascii")


def settled_by(op: Message) -> list[int]:
    """Queue offsets of half messages that an op message says are settled; none for any other."""
    if op.properties.get("TAGS") != "d":
        return []
    words = (word.strip() for word in bytes(op.body).decode("ascii", "replace").split(","))
    return [int(word) for word in words if _NUMBER.fullmatch(word)]


def _number(properties: Mapping[str, str], name: str) -> int | None:
    value = properties.get(name, "")
    return int(value) if _NUMBER.fullmatch(value) else None
