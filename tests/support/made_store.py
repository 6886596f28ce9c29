"""Store directories for tests: written here byte by byte, or taken from the vectors.

Files are written with plain `open`, so that what is tested is never what wrote them.
"""

from __future__ import annotations

import json
import struct
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketstore._native.format.codec import encode_properties, encode_record, tags_code
from tests.support.paths import VECTORS

BLANK_MAGIC = 0xCBD43194
PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)
UNIT_SIZE = 20
#: Where the body begins in a record with IPv4 hosts (format 2).
BODY_AT = 88


@dataclass(frozen=True)
class Record:
    """What a made store put."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags: str
    body: bytes


class MadeStore:
    """A store as RocketMQ writes it. `put` appends to the log, `dispatch` to the queues."""

    def __init__(
        self,
        root: Path,
        *,
        segment_size: int = 4096,
        queue_file_size: int = 10 * UNIT_SIZE,
        begin: int = 0,
        record_crc: bool = True,
    ) -> None:
        self.root = root
        self.segment_size = segment_size
        self.queue_file_size = queue_file_size
        self.record_crc = record_crc
        self.end = begin
        self.records: list[Record] = []
        self._next: dict[tuple[str, int], int] = {}
        self._dispatched = 0
        (root / "commitlog").mkdir(parents=True)
        (root / "consumequeue").mkdir()
        (root / "index").mkdir()  # not made: RocketMQ has one without a file, too

    def put(
        self,
        topic: str = "orders",
        queue_id: int = 0,
        body: bytes = b"body",
        *,
        tags: str = "",
        keys: Iterable[str] = (),
        properties: dict[str, str] | None = None,
        store_ms: int = 1_700_000_000_000,
        sys_flag: int = 0,
        queue_offset: int | None = None,
    ) -> Record:
        """Appends a record; rolls as RocketMQ does."""
        text = dict(properties or {})
        if keys:
            text["KEYS"] = " ".join(keys)
        if tags:
            text["TAGS"] = tags
        next_offset = self._next.get((topic, queue_id), 0) if queue_offset is None else queue_offset

        def encode() -> bytes:
            return encode_record(
                topic=topic,
                body=body,
                properties=encode_properties(text),
                queue_id=queue_id,
                queue_offset=next_offset,
                physical_offset=self.end,
                sys_flag=sys_flag,
                born_timestamp_ms=store_ms - 1,
                store_timestamp_ms=store_ms,
                record_crc=self.record_crc,
            )

        data = encode()
        left = self.segment_size - self.end % self.segment_size
        if len(data) + 8 > left:
            self.write_log(self.end, struct.pack(">iI", left, BLANK_MAGIC))
            self.end += left
            data = encode()
        record = Record(topic, queue_id, next_offset, self.end, len(data), tags, body)
        self.write_log(self.end, data)
        self.end += len(data)
        self.records.append(record)
        if sys_flag & 0xC in (0, 8):
            self._next[topic, queue_id] = next_offset + 1
        return record

    def fill(self, count: int, topic: str = "orders", queue_id: int = 0) -> list[Record]:
        """Puts messages of different sizes, stored 10 ms after each other, and dispatches them."""
        records = []
        for _ in range(count):
            number = len(self.records)
            body = b"%d|" % number + b"x" * (number * 37 % 200)
            when = 1_700_000_000_000 + 10 * number
            tags = ("paid", "", "refunded")[number % 3]
            records.append(self.put(topic, queue_id, body, tags=tags, store_ms=when))
        self.dispatch()
        return records

    def put_lookalike(self) -> Record:
        """A message whose body, where it stands, can be believed to be a record. Topic and properties are those
        of the message around it, so that it ends where that ends; so there may be no record checksum."""
        assert not self.record_crc
        inside = self.end + BODY_AT
        nested = encode_record(topic="orders", body=b"x" * 200, physical_offset=inside)
        return self.put(body=nested[: BODY_AT + 200])

    def dispatch(self) -> None:
        """Writes the units of records that have none yet."""
        for record in self.records[self._dispatched :]:
            code = tags_code(record.tags)
            self.write_unit(
                record.topic,
                record.queue_id,
                record.queue_offset,
                struct.pack(">qiq", record.physical_offset, record.size, code),
            )
        self._dispatched = len(self.records)

    def write_log(self, physical_offset: int, data: bytes) -> None:
        """Stores bytes at an offset of the log; the file is made when it is not there."""
        position = physical_offset % self.segment_size
        path = self.root / "commitlog" / f"{physical_offset - position:020d}"
        write_at(path, position, data, self.segment_size)

    def write_unit(self, topic: str, queue_id: int, queue_offset: int, unit: bytes) -> None:
        position = queue_offset * UNIT_SIZE % self.queue_file_size
        start = queue_offset * UNIT_SIZE - position
        path = self.root / "consumequeue" / topic / str(queue_id) / f"{start:020d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_at(path, position, unit, self.queue_file_size)


def write_at(path: Path, position: int, data: bytes, size: int | None = None) -> None:
    """Overwrites bytes of a file in place; makes it with `size` zeros when it is not there."""
    if not path.exists():
        assert size is not None
        with path.open("wb") as new:
            new.truncate(size)
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def vectors() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((VECTORS / "vectors.json").read_text())
    return loaded


def write_files(root: Path, files: dict[str, dict[str, Any]]) -> None:
    """Files as the vectors give them: bytes in hexadecimal, then zeros up to the size."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(content["hex"]).ljust(content["size"], b"\0"))


def rocketmq_store(name: str, directory: Path) -> tuple[Path, dict[str, Any]]:
    """One of the stores that RocketMQ wrote, unpacked, and what it holds."""
    root = directory / name
    with tarfile.open(VECTORS / "stores" / f"{name}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    expected: dict[str, Any] = json.loads((VECTORS / "stores" / f"{name}.expect.json").read_text())
    return root, expected
