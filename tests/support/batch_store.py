"""Stores with batch queues for tests, written byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path

import rocketstore
from rocketstore._native.format.codec import encode_properties, tags_code
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.batch_queue import batch_directory
from tests.support.made_store import MadeStore, Record, write_at

TOPIC = "packed"
#: Four units in a file, and some bytes that hold none.
FILE = 4 * 46 + 10
FIRST_MS = 1_700_000_000_000
UNIT = struct.Struct(">qiqqqhii")
Part = tuple[bytes, dict[str, str]]


def packed(parts: list[Part]) -> bytes:
    """Messages of a batch as their producer packs them; the flag of each is the size of its body."""
    data = b""
    for body, properties in parts:
        text = encode_properties(properties)
        size = 22 + len(body) + len(text)
        data += struct.pack(">5i", size, 0, 0, len(body), len(body)) + body
        data += struct.pack(">h", len(text)) + text
    return data


class BatchStore(MadeStore):
    """A store with a batch queue, beside a plain one."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.base = 0
        self.batches: list[tuple[Record, list[Part]]] = []
        self._units = 0

    def put_batch(
        self,
        parts: list[Part],
        *,
        tags: str = "",
        unit: bool = True,
        sys_flag: int = 0,
        body: bytes = b"",
    ) -> Record:
        number = len(self.batches)
        record = self.put(
            TOPIC,
            body=body or packed(parts),
            tags=tags,
            keys=[f"k{number}"],
            properties={"INNER_NUM": str(len(parts)), "INNER_BASE": str(self.base)},
            sys_flag=0xC0 | sys_flag,
            queue_offset=self.base,
            store_ms=FIRST_MS + 10 * number,
        )
        if unit:
            self.put_unit(record, len(parts), FIRST_MS + 10 * number)
        self.batches.append((record, parts))
        self.base += len(parts)
        return record

    def put_unit(
        self, record: Record, count: int, store_ms: int, number: int | None = None
    ) -> None:
        number = self._units if number is None else number
        self._units = max(self._units, number + 1)
        fields = (record.physical_offset, record.size, tags_code(record.tags), store_ms)
        unit = UNIT.pack(*fields, record.queue_offset, count, -1, 0)
        directory = batch_directory(StoreLayout(self.root), TOPIC, 0)
        directory.mkdir(parents=True, exist_ok=True)
        write_at(directory / f"{number // 4 * FILE:020d}", number % 4 * 46, unit, FILE)

    def fill_batches(self, count: int) -> None:
        """Batches of one to four messages, and a plain message behind each."""
        for number in range(count):
            parts = [
                (b"%d-%d" % (number, part), {"TAGS": "abc"[part % 3], "n": str(part)})
                for part in range(number % 4 + 1)
            ]
            self.put_batch(parts, tags="a")
            self.put()
            self._dispatched += 1
            self.dispatch()

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, parts in self.batches for body, _ in parts]


def bodies(store: rocketstore.Store) -> list[bytes]:
    return [message.body for message in store.consumer(TOPIC)]
