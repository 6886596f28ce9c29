"""Names of properties and topics that belong to RocketMQ or to the store.

A topic of services holds what they use themselves (format.md 12.1); what applications are to get of it,
services deliver in topics of applications. So readers leave such topics out unless they are named, and
writers of rows refuse them: a store acts upon what lies there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "RESERVED_PROPERTIES",
    "SCHEDULE_TOPIC",
    "SYSTEM_PREFIXES",
    "SYSTEM_TOPICS",
    "is_system_group",
    "is_system_topic",
    "of_one_store",
    "refused_in_transaction",
]

#: RocketMQ's topic of messages that wait for a delay level; queue n has those of level n + 1.
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
SYSTEM_TOPICS: Final = (
    SCHEDULE_TOPIC,
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "OFFSET_MOVED_EVENT",
    "SELF_TEST_TOPIC",
)
#: Of timers, halves of transactions and what was decided, commit records, traces, and so on.
SYSTEM_PREFIXES: Final = ("RMQ_SYS_", "rmq_sys_")

_OWN_ARGUMENT = "use the argument of put instead"
_SERVICE = "it belongs to a service that is not part of put; put_message takes it as it is"

#: Property names that `put` refuses, and what to do instead (format.md 19).
RESERVED_PROPERTIES: Mapping[str, str] = {
    "TAGS": _OWN_ARGUMENT + ": tags=",
    "KEYS": _OWN_ARGUMENT + ": keys=",
    "__SHARDINGKEY": _OWN_ARGUMENT + ": shard_key=",
    "WAIT": _OWN_ARGUMENT + ": durability=",
    "DELAY": _OWN_ARGUMENT + ": delay_level=",
    "TIMER_DELIVER_MS": _OWN_ARGUMENT + ": deliver_at=",
    "TIMER_DELAY_MS": _OWN_ARGUMENT + ": deliver_after=",
    "TIMER_DELAY_SEC": _OWN_ARGUMENT + ": deliver_after=",
    "__EVERY": "store.delayed.repeat puts what comes again",
    "__CRC32#": "the store writes it itself (record_crc)",
    "RS_TRANSACTION": "the store writes it itself (transaction)",
    **dict.fromkeys(
        (
            "REAL_TOPIC",
            "REAL_QID",
            "TRAN_MSG",
            "PGROUP",
            "TRAN_PREPARED_QUEUE_OFFSET",
            "TRANSACTION_CHECK_TIMES",
            "__transactionId__",
            "TIMER_OUT_MS",
            "TIMER_ENQUEUE_MS",
            "TIMER_DEQUEUE_MS",
            "TIMER_ROLL_TIMES",
            "TIMER_DEL_UNIQKEY",
            "TIMER_DELAY_LEVEL",
            "INNER_NUM",
            "INNER_BASE",
            "INNER_MULTI_DISPATCH",
            "INNER_MULTI_QUEUE_OFFSET",
            "DUP_INFO",
            "MIN_OFFSET",
            "MAX_OFFSET",
        ),
        _SERVICE,
    ),
}

_OF_DELAYS = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")
#: Properties that an application chooses, by an argument of `put`.
_OF_APPLICATIONS = ("TAGS", "KEYS", "__SHARDINGKEY")
#: Where a message waited before it was delivered: of copies and ends of delayed messages. `put`
#: takes them as any other.
_OF_WAITING = ("__DELAYED", "__ENDS", "TIMER_ROLL_LABEL")


def of_one_store(name: str) -> bool:
    """Whether a property says something of the store alone that a message is read from: its service
    has done what it asks for, or it names a place there. Another store makes its own."""
    reserved = name in RESERVED_PROPERTIES and name not in _OF_APPLICATIONS
    return reserved or name in _OF_WAITING or name.startswith("INNER_") or name.endswith("__CRC32#")


def refused_in_transaction(name: str) -> str | None:
    """Why a half message cannot have this property, and what to do instead; None: it can."""
    if name in _OF_DELAYS:
        return "it cannot be delayed; `store.transaction()` puts delayed messages"
    return RESERVED_PROPERTIES.get(name)


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES)


def is_system_group(group: str) -> bool:
    """Whether services store offsets of their own by this name; of a broker, consumers of its topics
    above."""
    return group.startswith("CID_RMQ_SYS_")
