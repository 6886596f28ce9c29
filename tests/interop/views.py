"""What a store serves, in one shape for both, and how two such views differ."""

from __future__ import annotations

import base64
import ipaddress
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from rocketstore import Message, Store
from rocketstore.cli.commands.tail import queue_messages
from tests.interop.messages import Sent

__all__ = ["Tally", "View", "expected", "of_oracle", "of_ours"]

#: Numbers, text and bytes of a message that both sides tell.
FIELDS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "size",
    "flag",
    "sys_flag",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "message_id",
    "body",
    "body_crc",
    "properties",
    "tags_code",
    "extension",
    "parts",
)
RECORD_CRC: Final = "__CRC32#"
Fields = dict[str, Any]


@dataclass
class View:
    """Every queue with a message in it: (topic, queue id) → queue offset → fields."""

    begin: int
    end: int
    queues: dict[tuple[str, int], dict[int, Fields]]
    bounds: dict[tuple[str, int], tuple[int, int]]

    def messages(self) -> dict[int, Fields]:
        """By physical offset; a message of several light queues once."""
        return {m["physical_offset"]: m for queue in self.queues.values() for m in queue.values()}


@dataclass
class Tally:
    """What was compared, and where it differed. Differences that are known carry their number."""

    scenarios: int = 0
    messages: int = 0
    fields: int = 0
    known: Counter[str] = field(default_factory=Counter)

    def same(self, theirs: View, ours: View) -> None:
        """Asserts that two views of one directory do not differ."""
        self.scenarios += 1
        assert (theirs.end, set(theirs.queues)) == (ours.end, set(ours.queues))
        assert theirs.bounds == ours.bounds
        for name, queue in theirs.queues.items():
            other = ours.queues[name]
            assert list(queue) == list(other), name
            for queue_offset, message in queue.items():
                self.same_message(message, other[queue_offset], f"{name} at {queue_offset}")

    def same_message(self, theirs: Fields, ours: Fields, where: str) -> None:
        self.messages += 1
        for name in FIELDS:
            if name in theirs and name in ours:
                self.fields += 1
                assert theirs[name] == ours[name], f"{where}: {name}"

    def plain(self) -> dict[str, Any]:
        """As another process can be told it."""
        return {**vars(self), "known": dict(self.known)}

    def add(self, plain: dict[str, Any]) -> None:
        """What another process compared."""
        for name in ("scenarios", "messages", "fields"):
            setattr(self, name, getattr(self, name) + plain[name])
        self.known.update(plain["known"])

    def know(self, number: str) -> None:
        """Counts a difference that docs/compatibility.md lists under `number`."""
        self.known[number] += 1


def of_oracle(dump: dict[str, Any]) -> View:
    """What RocketMQ serves. Queues that it only made room for are left out."""
    queues: dict[tuple[str, int], dict[int, Fields]] = {}
    bounds = {}
    for queue in dump["queues"]:
        if not queue["messages"]:
            continue
        name = (queue["topic"], queue["queue_id"])
        bounds[name] = (queue["min"], queue["max"])
        queues[name] = {}
        for message in queue["messages"]:
            assert "missing" not in message, f"RocketMQ has no record for {name}: {message}"
            assert message["unit_physical_offset"] == message["physical_offset"]
            assert message["unit_size"] == message["size"]
            queues[name][message["unit_queue_offset"]] = oracle_message(message)
    return View(max(0, dump["min_offset"]), dump["max_offset"], queues, bounds)


def oracle_message(message: dict[str, Any]) -> Fields:
    fields = {name: message[name] for name in FIELDS if name in message}
    fields["body"] = base64.b64decode(message["body"])
    for name in ("born_host", "store_host"):
        address, _, port = message[name].rpartition(" ")
        fields[name] = (ipaddress.ip_address(address), int(port))
    fields["properties"] = _plain(message["properties"])
    fields["body_crc"] &= 0x7FFFFFFF
    if "extension" in fields:
        told = fields["extension"]
        bit_map = base64.b64decode(told["bit_map"])
        fields["extension"] = (told["tags_code"], told["store_timestamp_ms"], bit_map)
    if "parts" in fields:
        fields["parts"] = [oracle_message(part) for part in fields["parts"]]
    return fields


def of_ours(store: Store) -> View:
    """What rocketstore serves."""
    queues: dict[tuple[str, int], dict[int, Fields]] = {}
    bounds = {}
    for topic in store.topics(system=True):
        for queue_id in store.queues(topic):
            found = dict(queue_messages(store, topic, queue_id, _damaged))
            if not found:
                continue
            name = (topic, queue_id)
            queues[name] = {at: our_message(message) for at, message in found.items()}
            bounds[name] = (
                store.min_queue_offset(topic, queue_id),
                store.max_queue_offset(topic, queue_id),
            )
    return View(store.begin_offset, store.end_offset, queues, bounds)


def our_message(message: Message) -> Fields:
    fields = {name: getattr(message, name) for name in FIELDS if hasattr(message, name)}
    for name in ("born_host", "store_host"):
        fields[name] = _host(fields[name])
    fields["properties"] = _plain(message.properties)
    fields["body_crc"] = zlib.crc32(message.body) & 0x7FFFFFFF
    return fields


def expected(sent: Sent) -> Fields:
    """What both have to serve of a message, but for what the put decides."""
    return {
        **{name: getattr(sent, name) for name in FIELDS if hasattr(sent, name)},
        "born_host": _host(sent.born_host),
        "store_host": _host(sent.store_host),
        "sys_flag": _with_address_kinds(sent),
        "properties": _plain(dict(sent.properties)),
        "body_crc": zlib.crc32(sent.body) & 0x7FFFFFFF,
    }


def _with_address_kinds(sent: Sent) -> int:
    born, store = (0x10 if "[" in sent.born_host else 0), (0x20 if "[" in sent.store_host else 0)
    return sent.sys_flag | born | store


def _host(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    address, _, port = text.rpartition(":")
    return ipaddress.ip_address(address.strip("[]")), int(port)


def _plain(properties: dict[str, str]) -> dict[str, str]:
    """Without the record CRC, which the store itself adds and checks."""
    return {name: value for name, value in properties.items() if name != RECORD_CRC}


def _damaged(error: Exception) -> None:
    raise error
