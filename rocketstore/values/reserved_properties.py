"""Names of properties that belong to RocketMQ or to the store."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["RESERVED_PROPERTIES", "refused_in_transaction"]

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


def refused_in_transaction(name: str) -> str | None:
    """Why a message of a transaction cannot have this property, and what to do instead; None: it
    can."""
    if name == "DELAY":
        return "it cannot be delayed; put_message takes a delayed message outside the transaction"
    return RESERVED_PROPERTIES.get(name)
