"""What calls of a guest are made of besides plain values: offsets and changes, checked as hostile values, and results
of puts as bytes.

What is wrong is a TypeError, a ValueError or a ConfigError, which names the argument.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rocketstore._native.append.put_result import PutResult, restore_put_result
from rocketstore.config import StoreConfig
from rocketstore.consuming.group_claims import GroupClaimedError
from rocketstore.log.queues.delayed_puts import Change
from rocketstore.values.arguments import text, whole_number

__all__ = [
    "MOST_ID",
    "SHARED",
    "changes_in",
    "check_moved",
    "numbers_in",
    "results_in",
    "results_text",
    "several",
]

#: Options of the host by which its guests put.
SHARED: Final = (
    *("sync_flush_timeout_ms", "max_message_size_bytes", "max_wait_ms", "delay_levels"),
    *("store_host", "auto_wide_topic", "index_enabled", "write_buffer_bytes", "record_crc"),
    *("multi_dispatch_enabled", "light_queue_enabled", "commit_log_file_size_bytes"),
    *("max_unflushed_bytes", "max_undispatched_bytes", "deliver_delayed", "durability", "visible"),
    *sorted(StoreConfig.LIVE - {"max_message_size_bytes", "sync_flush_timeout_ms"}),
)
#: Queues a claim names, or one commit moves, and messages of one transaction, at most.
MOST: Final = 65_536
MOST_ID: Final = 2**63 - 1
#: Of a result: its place, queue and time, whether it is a duplicate, the promise, when it is due, and the host.
_RESULT: Final = struct.Struct("<qqiqq?hqB20s")


def several(name: str, given: object, most: int = MOST) -> Sequence[Any]:
    if not isinstance(given, list) or len(given) > most:
        raise TypeError(f"{name}: expected a list of at most {most}")
    return given


def numbers_in(name: str, given: object) -> dict[int, int]:
    """Whole numbers by queue id."""
    if not isinstance(given, dict) or len(given) > MOST:
        raise TypeError(f"{name}: expected at most {MOST} numbers by queue id")
    return {
        whole_number(name, key, 0, 2**31 - 1): whole_number(name, at, 0, MOST_ID)
        for key, at in given.items()
    }


def changes_in(given: object) -> list[Change]:
    found = []
    for one in several("changes", given):
        unique_id, when_ms, span_ms = several("changes", one, 3)
        at = None if when_ms is None else whole_number("changes", when_ms, 0, MOST_ID)
        found.append(
            Change(text("changes", unique_id), at, whole_number("changes", span_ms, 0, MOST_ID))
        )
    return found


def results_text(results: Sequence[PutResult]) -> bytes:
    """What `results_in` takes: results of single messages, without their ids. A transaction has more of them than
    JSON of a call may hold."""
    parts = []
    for one in results:
        fields: Any = one.__reduce__()[1]
        host = fields[7]
        parts.append(
            _RESULT.pack(*fields[:5], one.duplicate, fields[6], fields[12], len(host), host)
        )
    return b"".join(parts)


def results_in(data: bytes, ids: Sequence[str | None]) -> list[PutResult]:
    """The results of messages with these unique ids."""
    found = []
    for each, name in zip(_RESULT.iter_unpack(data), ids, strict=True):
        begin, end, queue_id, at, stored_ms, duplicate, level, due_ms, size, host = each
        places = (begin, end, queue_id, at, stored_ms, 1, level, host[:size], None, None, None)
        found.append(restore_put_result(*places, duplicate, due_ms, name))
    return found


def check_moved(
    key: str,
    before: Mapping[int, int],
    now: Mapping[int, int],
    queue_ids: tuple[int, ...] | None,
) -> None:
    """GroupClaimedError where the offsets of a group have moved on: another consumer had it while the host changed."""
    chosen = now if queue_ids is None else queue_ids
    if any(now.get(n, 0) > before.get(n, 0) for n in chosen):
        topic, _, group = key.partition("@")
        raise GroupClaimedError(topic, group, "one that had it while the host changed")
