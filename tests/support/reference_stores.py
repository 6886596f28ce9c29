"""Stores that RocketMQ wrote, compared with what RocketMQ acknowledged.

Each `NAME.tar.xz` has a `NAME.expect.json`; tests/vectors/stores/README.md explains its fields.
"""

from __future__ import annotations

import hashlib
import ipaddress
import shutil
import tarfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rocketstore
from rocketstore.cli.commands.tail import queue_messages
from rocketstore.values import LIMITS, parse_json

if TYPE_CHECKING:
    from rocketstore import Message, Store

__all__ = ["Comparison", "Expectation", "compare", "find_stores", "open_reference"]

#: A record's own fields in the expectation, and how a message shows them.
_PLAIN_FIELDS: Final = {
    "topic": "topic",
    "queue_id": "queue_id",
    "queue_offset": "queue_offset",
    "physical_offset": "physical_offset",
    "size": "size",
    "flag": "flag",
    "sys_flag": "sys_flag",
    "born_ts": "born_timestamp_ms",
    "born_host": "born_host",
    "store_ts": "store_timestamp_ms",
    "store_host": "store_host",
    "reconsume": "reconsume_times",
    "prepared_offset": "prepared_transaction_offset",
    "msg_id": "message_id",
}
_RECORD_CRC: Final = "__CRC32#"
#: Enough for the largest list of messages with one key in these stores.
_QUERY_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True)
class Expectation:
    """What has to be, may be and must not be served of one store."""

    name: str
    archive: Path
    text: str
    config: dict[str, Any]
    #: (topic, queue id) → queue offset → (physical offset, tags code)
    slots: dict[tuple[str, int], dict[int, tuple[int, int]]]
    unqueued: tuple[int, ...]
    index: tuple[tuple[str, str, tuple[int, ...]], ...]
    first_log_offset: int
    #: Physical offset → fields of the acknowledged record.
    acked: dict[int, dict[str, Any]]
    #: Physical offsets of records after damage, of records changed out of sight of any checksum,
    #: and of records that must not come back.
    may: frozenset[int]
    either: frozenset[int]
    must_not: frozenset[int]

    @classmethod
    def load(cls, path: Path) -> Expectation:
        """Reads `NAME.expect.json`."""
        found: Any = parse_json(path.read_bytes(), LIMITS["archive"])
        must = found["must"]
        slots: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
        for topic, queue_id, queue_offset, physical_offset, tags_code in must["slots"]:
            slots.setdefault((topic, queue_id), {})[queue_offset] = (physical_offset, tags_code)
        refused = found["must_not"]
        return cls(
            name=found["name"],
            archive=path.with_name(found["name"] + ".tar.xz"),
            text=found["tests"],
            config=found["config"],
            slots=slots,
            unqueued=tuple(must["unqueued"]),
            index=tuple((topic, key, tuple(at)) for topic, key, at in must["index"]),
            first_log_offset=must["first_log_offset"],
            acked={record["physical_offset"]: record for record in found["acked"]},
            may=frozenset(_offsets(found["may"])),
            either=frozenset(_offsets(found["either"])),
            must_not=frozenset(_offsets(refused["damaged"]) | _offsets(refused["stale"])),
        )

    @property
    def optional(self) -> frozenset[int]:
        return self.may | self.either

    def unpack(self, directory: Path) -> Path:
        """A fresh copy of the store in a new directory below `directory`."""
        root = directory / self.name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        with tarfile.open(self.archive) as archive:
            archive.extractall(root, filter="data")
        return root


@dataclass(slots=True)
class Comparison:
    """What one store served. `mismatches` is empty when all of it was right."""

    name: str
    mode: str
    messages: int = 0
    queues: int = 0
    index_hits: int = 0
    #: Whole records after damage that RocketMQ would have cut off.
    saved: int = 0
    mismatches: list[str] = field(default_factory=list)

    def differ(self, text: str) -> None:
        self.mismatches.append(f"{self.name} ({self.mode}): {text}")


def find_stores(directory: Path) -> list[Expectation]:
    """The stores of a directory, by name; empty when there is no such directory."""
    return [Expectation.load(path) for path in sorted(directory.glob("*.expect.json"))]


def open_reference(expected: Expectation, root: Path, mode: Any) -> Store:
    """Opens an unpacked store as a broker with its settings would."""
    config = rocketstore.StoreConfig.from_rocketmq(
        {name: _setting(value) for name, value in expected.config.items()},
        deliver_delayed=False,
    )
    return rocketstore.open(root, mode, config=config)


def compare(expected: Expectation, store: Store, mode: str) -> Comparison:
    """Reads everything out of an open store and compares it."""
    found = Comparison(expected.name, mode)
    if store.begin_offset != expected.first_log_offset:
        found.differ(f"the log begins at {store.begin_offset}, not {expected.first_log_offset}")
    _compare_queues(expected, store, found)
    for physical_offset in expected.unqueued:
        message = _get(store, physical_offset)
        if message is None:
            found.differ(f"no record at {physical_offset}, which is in no queue")
        else:
            found.messages += 1
            _compare_record(expected, message, found)
    for physical_offset in sorted(expected.must_not):
        if _get(store, physical_offset) is not None:
            found.differ(f"the damaged record at {physical_offset} was served")
    for topic, key, physical_offsets in expected.index:
        _compare_key(expected, store, found, topic, key, set(physical_offsets))
    return found


def _compare_queues(expected: Expectation, store: Store, found: Comparison) -> None:
    there = {
        (topic, queue_id) for topic in store.topics(system=True) for queue_id in store.queues(topic)
    }
    found.queues = len(there)
    for topic, queue_id in sorted(set(expected.slots) - there):
        found.differ(f"no queue {topic}/{queue_id}")
    for topic, queue_id in sorted(there):
        wanted = dict(expected.slots.get((topic, queue_id), {}))

        def damaged(error: rocketstore.CorruptRecordError) -> None:
            if error.physical_offset not in expected.optional | expected.must_not:
                found.differ(str(error))

        for queue_offset, message in queue_messages(store, topic, queue_id, damaged):
            found.messages += 1
            physical_offset = message.physical_offset
            slot = wanted.pop(queue_offset, None)
            where = f"{topic}/{queue_id} at {queue_offset}"
            if slot is not None and slot[0] != physical_offset:
                found.differ(f"{where}: the record at {physical_offset}, not {slot[0]}")
            elif slot is None and physical_offset not in expected.optional:
                found.differ(f"{where}: the record at {physical_offset}, which is not expected")
            found.saved += slot is None and physical_offset in expected.may
            _compare_record(expected, message, found)
        for queue_offset, (physical_offset, _) in wanted.items():
            found.differ(f"{topic}/{queue_id} at {queue_offset}: no record ({physical_offset})")


def _compare_record(expected: Expectation, message: Message, found: Comparison) -> None:
    physical_offset = message.physical_offset
    if physical_offset in expected.either:
        return
    record = expected.acked.get(physical_offset)
    if record is None:
        found.differ(f"the record at {physical_offset} was never acknowledged")
        return
    for name, attribute in _PLAIN_FIELDS.items():
        value, wanted = getattr(message, attribute), record[name]
        if name.endswith("_host"):
            value, wanted = _address(value), _address(wanted)
        if value != wanted:
            found.differ(f"{physical_offset}: {name} is {value!r}, not {wanted!r}")
    body = bytes(message.body)
    summary = (len(body), zlib.crc32(body) & 0x7FFFFFFF, hashlib.sha1(body).hexdigest())
    if summary[::2] != (record["body_len"], record["body_sha1"]):
        found.differ(f"{physical_offset}: another body")
    elif summary[1] != record["body_crc"] & 0x7FFFFFFF:
        found.differ(f"{physical_offset}: another CRC")
    properties = {k: v for k, v in message.properties.items() if k != _RECORD_CRC}
    if properties != {k: v for k, v in record["properties"].items() if k != _RECORD_CRC}:
        found.differ(f"{physical_offset}: properties {properties}, not {record['properties']}")


def _compare_key(
    expected: Expectation, store: Store, found: Comparison, topic: str, key: str, wanted: set[int]
) -> None:
    try:
        messages = store.query(topic, key, limit=_QUERY_LIMIT)
    except rocketstore.CorruptRecordError as error:
        found.differ(f"key {key!r} of {topic} gave nothing: {error}")
        return
    hits = {message.physical_offset for message in messages}
    found.index_hits += len(hits & wanted)
    if len(hits) != len(messages):
        found.differ(f"key {key!r} of {topic} gave a message twice")
    if wanted - hits:
        found.differ(f"key {key!r} of {topic} did not give {sorted(wanted - hits)}")
    if hits - wanted - expected.optional:
        found.differ(f"key {key!r} of {topic} gave also {sorted(hits - wanted)}")


def _get(store: Store, physical_offset: int) -> Message | None:
    try:
        return store.get(physical_offset)
    except (
        rocketstore.MessageNotFoundError,
        rocketstore.CorruptRecordError,
        rocketstore.OffsetOutOfRangeError,
    ):
        return None


def _address(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """`1.2.3.4:5` or `[::1]:5`; Java does not shorten zeros."""
    host, _, port = text.rpartition(":")
    return ipaddress.ip_address(host.strip("[]")), int(port)


def _offsets(entries: list[Any]) -> set[int]:
    """Physical offsets of entries that are offsets, or records that have one."""
    return {entry["physical_offset"] if isinstance(entry, dict) else entry for entry in entries}


def _setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
