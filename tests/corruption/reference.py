"""The reference store that is damaged: a log of about 1 MiB with every kind of record, and all that is
derived from it, at rest.

The log is encoded here record by record, so that the place of each field is known; everything else is
made by opening that log for writing once, storing offsets, and closing it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore._native.format.codec import decode_record, encode_properties, encode_record
from tests.support.made_store import BLANK_MAGIC
from tests.support.state_json import change_json

__all__ = ["INDEX", "Placed", "Reference", "field_at", "make_reference"]

SEGMENT = 16 * 1024
QUEUE_FILE = 100 * 20
#: Shape of the index files, which no file says.
INDEX = {"index_slots": 64, "index_entries": 512}
WIDE_TOPIC = "w" * 200
V6_HOST = "[2001:db8::7]:10911"
CRC_SIZE = 20
#: Fields of a record with hosts of 4 bytes up to the body, in order, and their sizes (format.md 2.1).
HEAD = (
    ("total size", 4), ("magic", 4), ("body crc", 4), ("queue id", 4), ("flag", 4),
    ("queue offset", 8), ("physical offset", 8), ("sys flag", 4), ("born timestamp", 8),
)  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """One record of the reference log, where it stands. Blanks have no content."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    @property
    def is_blank(self) -> bool:
        return self.data[4:8] == struct.pack(">I", BLANK_MAGIC)


@dataclass(frozen=True)
class Reference:
    """The store's directory, and every record and blank of its log in order."""

    root: Path
    record_crc: bool
    placed: tuple[Placed, ...]

    @property
    def records(self) -> list[Placed]:
        return [one for one in self.placed if not one.is_blank]

    @property
    def segments(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())


def field_at(data: bytes, position: int) -> str:
    """Name of the field of a record that holds the byte at `position`."""
    if data[4:8] == struct.pack(">I", BLANK_MAGIC):
        return "blank head" if position < 8 else "blank filler"
    for name, end in _field_ends(data):
        if position < end:
            return name
    raise ValueError(f"{position} is outside a record of {len(data)} bytes")


def _field_ends(data: bytes) -> Iterator[tuple[str, int]]:
    end = 0

    def step(name: str, size: int) -> tuple[str, int]:
        nonlocal end
        end += size
        return name, end

    for name, size in HEAD:
        yield step(name, size)
    sys_flag = int.from_bytes(data[36:40], "big")
    yield step("born host", 20 if sys_flag & 0x10 else 8)
    yield step("store timestamp", 8)
    yield step("store host", 20 if sys_flag & 0x20 else 8)
    yield step("reconsume times", 4)
    yield step("prepared offset", 8)
    body_size = int.from_bytes(data[end : end + 4], "big")
    yield step("body length", 4)
    yield step("body", body_size)
    wide = data[7] == 0xAB
    topic_size = int.from_bytes(data[end : end + (2 if wide else 1)], "big")
    yield step("topic length", 2 if wide else 1)
    yield step("topic", topic_size)
    yield step("properties length", 2)
    checked = data[-CRC_SIZE:].startswith(b"__CRC32#\x01")
    yield step("properties", len(data) - end - (CRC_SIZE if checked else 0))
    yield step("record crc", CRC_SIZE)


def make_reference(
    root: Path, *, record_crc: bool, size: int = 1 << 20, seed: int = 11
) -> Reference:
    """Writes a log of `size` bytes with its derived files; the same arguments give the same log."""
    (root / "commitlog").mkdir(parents=True)
    placed = _write_log(root / "commitlog", random.Random(seed), size, record_crc)
    options: dict[str, Any] = {"consume_queue_file_size_bytes": QUEUE_FILE, **INDEX}
    with rocketstore.open(root, record_crc=record_crc, **options) as store:
        billing = store.consumer("orders", group="billing")
        billing.poll(max_messages=20)
        billing.commit()
    # What was written here stands for what rocketstore put: no range is another program's.
    path = root / "rocketstore" / "store.json"
    change_json(path, foreign=[])
    return Reference(root, record_crc, tuple(placed))


def _write_log(directory: Path, rng: random.Random, size: int, record_crc: bool) -> list[Placed]:
    placed: list[Placed] = []
    content = bytearray()
    next_offset: dict[tuple[str, int], int] = {}
    number = 0
    while len(content) < size - SEGMENT // 3:
        fields = _kind(number, rng)
        queue = (fields["topic"], fields["queue_id"])
        queued = fields.get("sys_flag", 0) & 0xC in (0, 8)
        data = encode_record(
            **fields,
            queue_offset=next_offset.get(queue, 0) if queued else 0,
            physical_offset=len(content),
            born_timestamp_ms=1_700_000_000_000 + number,
            store_timestamp_ms=1_700_000_000_000 + 3 * number,
            record_crc=record_crc,
        )
        left = SEGMENT - len(content) % SEGMENT
        if len(data) + 8 > left:
            filler = struct.pack(">iI", left, BLANK_MAGIC) + bytes(left - 8)
            placed.append(Placed(len(content), filler))
            content += filler
            continue
        placed.append(Placed(len(content), data))
        content += data
        if queued:
            next_offset[queue] = next_offset.get(queue, 0) + 1
        number += 1
    content += bytes(-len(content) % SEGMENT)
    for start in range(0, len(content), SEGMENT):
        (directory / f"{start:020d}").write_bytes(content[start : start + SEGMENT])
    return placed


def _kind(number: int, rng: random.Random) -> dict[str, Any]:
    """Fields of the next record: each kind in turn, bodies of many lengths."""
    body = rng.randbytes(rng.choice((1, 20, 100, 300, 700, 1500)))
    text = {"KEYS": f"key-{number} k{number % 7}", "TAGS": ("paid", "open")[number % 2]}
    fields: dict[str, Any] = {"topic": "orders", "queue_id": number % 2, "body": body}
    match number % 12:
        case 1:
            fields |= {"body": b""}
        case 2:
            fields |= {"topic": WIDE_TOPIC, "queue_id": 0}
        case 3:
            fields |= {"born_host": V6_HOST, "store_host": V6_HOST}
        case 4:
            fields |= {"born_host": V6_HOST, "flag": 7, "reconsume_times": 2}
        case 5:
            fields |= {"sys_flag": 4, "topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queue_id": 0}
        case 6:
            fields |= {"sys_flag": 8, "prepared_transaction_offset": 16}
        case 7:
            fields |= {"sys_flag": 12, "prepared_transaction_offset": 16}
        case 8:
            text = {}
        case 9:
            text = {f"name-{i}": "value" * i for i in range(1, 20)}
        case 10:
            # A whole record in a body: resynchronising must not step into it.
            inner = encode_record(topic="inner", body=b"not a message of this store")
            fields |= {"body": inner}
        case 11:
            fields |= {"topic": "../escape", "queue_id": 0}
        case _:
            text["UNIQ_KEY"] = f"7F0000010BAD18B4AAC2{number:012X}"
    return {**fields, "properties": encode_properties(text)}


def content_of(data: bytes) -> dict[str, Any]:
    """What a record says, without the properties' checksum."""
    return dict(decode_record(data, verify=False))
