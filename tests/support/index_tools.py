"""Index files for tests: small ones in private memory, forged ones on disk, and stores of them."""

from __future__ import annotations

import itertools
import os
import random
import struct
from pathlib import Path
from typing import Any, NamedTuple

from rocketstore._native.format import index_file
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.index.segment import Shape
from rocketstore.log.index.store import IndexStore, hash_of
from rocketstore.log.layout.paths import StoreLayout

NOW_MS = 1_700_000_000_000
FOREVER = 2**63 - 1


def key_hash(text: str) -> int:
    """Hash of a whole key text, topic # key."""
    topic, _, key = text.partition("#")
    return index_file.key_hash(topic.encode(), key.encode())


def offsets_of(
    index: IndexStore,
    topic: str,
    key: str,
    begin_ms: int = 0,
    end_ms: int = FOREVER,
    limit: int | None = None,
) -> list[int]:
    """What the index proposes for a key: newest first, each once."""
    found = index.candidates(topic, key, begin_ms, end_ms)
    return list(itertools.islice(dict.fromkeys(found), limit))


class Sut(NamedTuple):
    """A file of a few slots in private memory."""

    file: MappedFile
    slots: int
    entries: int

    def put(self, text: str | int, offset: int, time_ms: int = NOW_MS) -> bool:
        number = text if isinstance(text, int) else key_hash(text)
        return index_file.put(*self, self.entries, number, offset, time_ms)

    def offsets(self, text: str | int, begin_ms: int = 0, end_ms: int = FOREVER) -> list[int]:
        number = text if isinstance(text, int) else key_hash(text)
        walk = index_file.Walk(*self, number, begin_ms, end_ms)
        return [*itertools.chain.from_iterable(iter(walk.next, []))]

    def entry(self, number: int) -> tuple[int, int, int, int]:
        return index_file.entry(*self, number)

    def bytes(self) -> bytes:
        return self.file.read(0, self.file.size)

    def write_entry(
        self, number: int, hash_: int, offset: int, diff_s: int = 0, previous: int = 0
    ) -> None:
        position = index_file.entry_position(self.slots, number)
        self.file.write(position, struct.pack(">iqii", hash_, offset, diff_s, previous))

    def write_slot(self, slot: int, number: int) -> None:
        self.file.write(40 + 4 * slot, struct.pack(">i", number))

    def write_count(self, count: int) -> None:
        self.file.write(36, struct.pack(">i", count))

    def valid(self, *, growing: bool = False) -> bool:
        return index_file.validate(*self, growing=growing)


def make(slots: int = 5, entries: int = 8, previous_end: tuple[int, int] = (0, 0)) -> Sut:
    """`previous_end`: physical offset and store time, as the vectors have it."""
    file = MappedFile.anonymous(0, index_file.file_size(slots, entries))
    file.write(0, index_file.fresh_header(previous_end[1], previous_end[0]))
    return Sut(file, slots, entries)


def filled(
    source: random.Random, slots: int = 7, entries: int = 40, count: int = 30
) -> tuple[Sut, list[Any]]:
    """A file with random keys and rising offsets, and what was put."""
    sut = make(slots, entries)
    puts = []
    offset = 0
    for number in range(count):
        offset += source.choice((0, 100, 131))
        puts.append((source.randrange(12), offset, NOW_MS + number * 700))
        assert sut.put(*puts[-1])
    return sut, puts


def expected(puts: list[Any], number: int) -> list[int]:
    """Offsets of a hash, newest first, none twice."""
    return list(dict.fromkeys(offset for hash_, offset, _ in reversed(puts) if hash_ == number))


def opened(
    layout: StoreLayout, *, slots: int = 5, entries: int = 8, access: Any = "write"
) -> IndexStore:
    index = IndexStore(layout, access, slots, entries)
    index.load()
    return index


def put(
    index: IndexStore, key: str, offset: int, time_ms: int | None = None, topic: str = "T"
) -> bool:
    """Indexes one key, as the dispatcher does; False when the index is degraded."""
    number = hash_of(topic, key)
    entry = (number, offset, NOW_MS + offset if time_ms is None else time_ms)
    while index.target is not None or index.make_room() is not None:
        segment = index.files[-1]
        if segment.has_slot(number) and index_file.put(
            segment.file, *segment.shape, segment.limit, *entry
        ):
            return True
        index.make_room(number)
    return False


def names(layout: StoreLayout) -> list[str]:
    return sorted(path.name for path in layout.index.iterdir())


def forge(layout: StoreLayout, name: str, shape: Shape, puts: list[tuple[str, int, int]]) -> Path:
    """An index file as another maker leaves it: sparse, of any shape."""
    path = layout.index / name
    path.write_bytes(bytes(40))
    os.truncate(path, shape.file_size)
    file = MappedFile.open(str(path), 0, shape.file_size, "write")
    for key, offset, time_ms in puts:
        assert index_file.put(file, *shape, shape.entries, hash_of("T", key), offset, time_ms)
    file.close()
    return path
