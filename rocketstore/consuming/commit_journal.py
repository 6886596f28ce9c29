"""`rocketstore/group_offsets`: commits that `config/consumerOffset.json` does not hold yet.

A commit costs one write in place and one sync, however many groups there are; the JSON, a new file
each time, costs several. The file is a ring of blocks, each with its own checksum and number, so a
torn write harms no commit before it, and a changed or missing block differs from one that was never
written. Every few seconds, when the ring is full and at close, the commits are merged
into the JSON, which RocketMQ reads.

Each file says how far the other one has come. The JSON names the first block whose commits it
lacks, and the checksum of its table; a block names what the JSON held when it was written. So an
open sees which of the two is missing, changed or an older copy (decisions 0032 and 0047).
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketstore._native.os import syscalls
from rocketstore.log.layout.state_files import open_fixed_file, open_plain_file
from rocketstore.values.bounded_json import LIMITS, parse_json

__all__ = [
    "JOURNAL_BYTES",
    "CommitJournal",
    "Journal",
    "Moved",
    "journal_stamp",
    "mark_of",
    "moves_in",
    "moves_text",
]

#: Length of the file. A commit that does not fit goes into the JSON.
JOURNAL_BYTES: Final = 256 << 10
#: What a disk writes whole.
BLOCK: Final = 512
MAGIC: Final = b"RSCOMIT2"
# Magic, CRC of what follows it, bytes of the text, blocks of the record before and after this one,
# blocks before it that no sync covered, number of the block, number of the first block whose
# commits the JSON lacked.
HEAD: Final = struct.Struct("<8sIHHHHQQ")
CHECKED_FROM: Final = 12
ROOM: Final = BLOCK - HEAD.size
#: Of a record: bytes of the key, queue id, what the JSON held (-1: nothing), what counts now; then the
#: key. The sign that begins a text of them is no JSON.
MOVED: Final = struct.Struct("<HIqq")
TEXT_MAGIC: Final = b"\1"
#: Blocks that a text names, a count, and bytes of what each says.
NAMED_MAX: Final = 3
SHOWN_MAX: Final = 100
#: Rows of a table that are made text at a time.
PARTS: Final = 1000


class Moved(NamedTuple):
    """One offset of a commit: what the JSON held (None: nothing) and what counts now."""

    key: str
    queue_id: int
    was: int | None
    now: int


class Journal:
    """What the file of a journal holds. Never raises on what its bytes are."""

    def __init__(self, path: Path) -> None:
        #: `usable`: whether commits can be written to it, or it can be made.
        self._content, self.fault, self.usable = _content(path)
        blocks = (_block(self._content, at) for at in range(0, len(self._content), BLOCK))
        self._blocks = {one.number: one for one in blocks if one is not None}
        newest = self._blocks[max(self._blocks)] if self._blocks else _Block(0, -1, 0, 0, 0, b"")
        #: All blocks before this one were on the disk when a record was written: a loss of power takes
        #: none of them.
        self._durable = max((one.durable for one in self._blocks.values()), default=0)
        #: Number of the block that comes next.
        self.end = newest.number + newest.left + 1
        #: The first block whose commits the JSON lacked when the newest one was written.
        self.merged = newest.merged

    def commits(self, first: int) -> list[Moved]:
        """Those of the records from this block on that are whole, in their order."""
        found: list[Moved] = []
        for number in self._numbers(first):
            begin = self._blocks.get(number)
            length = begin.left + 1 if begin is not None and not begin.before else 0
            parts = [self._blocks.get(number + n) for n in range(length)]
            if all(parts):
                found += _moved(b"".join(part.text for part in parts if part))
        return found

    def damage(self, first: int) -> str:
        """Which blocks from this one on are changed or lack, and what is left of them; "" for none.
        Blocks that no sync had covered may lack: a loss of power takes any of them."""
        numbers = [n for n in (*self._numbers(first), self.end) if n not in self._blocks]
        bad = [n for n in numbers if n < self._durable or self._is_changed(_place_of(n))]
        texts = (
            (n, self._content[_place_of(n) + HEAD.size :][:SHOWN_MAX]) for n in bad[:NAMED_MAX]
        )
        shown = "; ".join(f"{n} ({text.rstrip(bytes(1))!a})" for n, text in texts)
        return f"damaged at block {shown}" if bad else ""

    def _numbers(self, first: int) -> range:
        return range(max(first, self.end - JOURNAL_BYTES // BLOCK), self.end)

    def _is_changed(self, at: int) -> bool:
        """Whether something lies there that is no block, neither this one nor an older one."""
        return any(self._content[at : at + BLOCK]) and _block(self._content, at) is None


class CommitJournal:
    """Written by the one process that has the store open for writing; the caller takes turns."""

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._fd = -1
        self._next = self._merged = self._durable = 0  # numbers of blocks
        # Whether the JSON is marked, so that a journal that lacks can be seen.
        self._begun = False
        self._usable = True
        #: Whether a commit since the last sync may be lost with the power.
        self.unsynced = False
        #: Whether a write failed: what the file holds then is not known, and it takes no more in
        #: this run.
        self.failed = False

    def follow(self, found: Journal, merged: int, *, begun: bool) -> None:
        """Goes on after what was found. `begun`: both files are as the last merge left them."""
        self._merged, self._next = merged, max(found.end, merged)
        self._begun, self._usable = begun, found.usable
        # The process before may have been killed ahead of its sync.
        self._durable, self.unsynced = merged, found.usable and found.end > 1

    def add(self, moved: Iterable[tuple[str, int, int | None, int]], *, sync: bool) -> bool:
        """Writes a commit, durably if `sync`. False: it does not fit, or the JSON has to be written
        first, and nothing was written.

        Raises:
            DiskFullError: the journal has no blocks, and there is no room for them; nothing was
                written.
            OSError: it may be in the file or not; `failed` from here on.
        """
        if self.failed or not self._begun or not self._usable:
            return False
        text = TEXT_MAGIC + moves_text(moved)
        taken = self._next - self._merged + -(-len(text) // ROOM)
        if taken >= JOURNAL_BYTES // BLOCK:  # one is kept for the note of the merge
            return False
        self._write(text)
        if sync:
            self.sync()
        self.failed = False
        return True

    def sync(self) -> None:
        """Makes durable what was added without a sync."""
        if self.unsynced:
            self._open()
            syscalls.fdatasync(self._fd)
            self._durable, self.unsynced = self._next, False

    def before_merge(self) -> int:
        """Makes the journal durable; the number that the JSON is marked with, which is about to
        hold all commits before that block.

        Raises:
            DiskFullError: the journal has no blocks yet, and there is no room for them.
        """
        if not self._next:
            self.after_merge(0)
        self.sync()
        return max(1, self._next)

    def after_merge(self, merged: int) -> None:
        """The JSON holds all commits before this block, durably, which a record without commits
        says. 0: there is no JSON yet."""
        anew = merged > 0 and not self._begun
        self._merged, self._begun = merged, merged > 0
        if self._usable:
            failed = self.failed
            self._write(b"")
            if anew:  # other blocks may be damaged, and the next open would report them again
                at, zeros = _place_of(self._next - 1), bytes(JOURNAL_BYTES)
                syscalls.pwrite(self._fd, zeros[:at], 0)
                syscalls.pwrite(self._fd, zeros[at + BLOCK :], at + BLOCK)
            self.sync()
            self.failed = failed

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            syscalls.close(fd)

    def _write(self, text: bytes) -> None:
        """A record at the end of the ring; `failed` until the caller knows that it is there."""
        self._open()
        number, last, at = self._next, max(0, len(text) - 1) // ROOM, _place_of(self._next)
        self._next += last + 1  # also where the write fails: no other record gets the number
        self.failed = self.unsynced = True
        data = b""
        for n in range(last + 1):
            place = (n, last - n, number - self._durable, number + n, self._merged)
            data += _bytes_of(text[n * ROOM : (n + 1) * ROOM], *place)
        syscalls.pwrite(self._fd, data[: JOURNAL_BYTES - at], at)
        if at + len(data) > JOURNAL_BYTES:
            syscalls.pwrite(self._fd, data[JOURNAL_BYTES - at :], 0)

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = open_fixed_file(self._path, JOURNAL_BYTES, "commits")


class _Block(NamedTuple):
    before: int
    left: int
    unsynced: int
    number: int
    merged: int
    text: bytes

    @property
    def durable(self) -> int:
        """All blocks before this one were on the disk when the record was written."""
        return self.number - self.before - self.unsynced


def mark_of(table: Mapping[str, object], merged: int) -> dict[str, int]:
    """What the JSON says of itself: the first block whose commits its table lacks, and a
    checksum."""
    names, crc = sorted(table), zlib.crc32(b"{")
    for at in range(0, len(names), PARTS):  # as one text, without the memory for it
        part = json.dumps({name: table[name] for name in names[at : at + PARTS]}, sort_keys=True)
        crc = zlib.crc32(f"{', ' if at else ''}{part[1:-1]}".encode(), crc)
    return {"merged": merged, "crc": zlib.crc32(b"}", crc)}


def journal_stamp(path: Path) -> int:
    """Another number for another content."""
    return zlib.crc32(_content(path)[0])


def _content(path: Path) -> tuple[bytes, str, bool]:
    """The bytes of the file, what is wrong with it as a whole, and whether it can be written."""
    try:
        fd = open_plain_file(path)
    except FileNotFoundError:
        return b"", "it is gone", True
    except ValueError as error:
        return b"", f"it is {error}", False
    try:
        data = syscalls.pread(fd, JOURNAL_BYTES, 0)
    finally:
        syscalls.close(fd)
    short = f"it has {len(data)} bytes, not {JOURNAL_BYTES}"
    return data, short if len(data) < JOURNAL_BYTES else "", True


def _bytes_of(
    part: bytes, before: int, left: int, unsynced: int, number: int, merged: int
) -> bytes:
    fields = struct.pack("<HHHHQQ", len(part), before, left, unsynced, number, merged) + part
    fields = fields.ljust(BLOCK - CHECKED_FROM, b"\0")
    return MAGIC + zlib.crc32(fields).to_bytes(4, "little") + fields


def _block(content: bytes, at: int) -> _Block | None:
    """The block at this position of the file; None: there is none, or it is changed."""
    data = content[at : at + BLOCK]
    if data[: len(MAGIC)] != MAGIC or len(data) < BLOCK:
        return None
    _, crc, length, before, left, unsynced, number, merged = HEAD.unpack_from(data)
    whole = zlib.crc32(data[CHECKED_FROM:]) == crc and number >> 62 == 0 and _place_of(number) == at
    text = data[HEAD.size : HEAD.size + length]
    return _Block(before, left, unsynced, number, merged, text) if whole else None


def _place_of(number: int) -> int:
    return number * BLOCK % JOURNAL_BYTES


def moves_text(moves: Iterable[tuple[str, int, int | None, int]]) -> bytes:
    """Rows in their binary form."""
    parts: list[bytes] = []
    for key, queue_id, was, now in moves:
        name = key.encode("utf-8", "surrogatepass")
        parts += (MOVED.pack(len(name), queue_id, -1 if was is None else was, now), name)
    return b"".join(parts)


def moves_in(data: bytes, at: int, most: int | None = None) -> tuple[list[Moved], int]:
    """Rows from a place on, `most` of them at most, and the place after them. struct.error, ValueError: they
    are none."""
    moves: list[Moved] = []
    while at < len(data) and len(moves) != most:
        size, queue_id, was, now = MOVED.unpack_from(data, at)
        begin, at = at + MOVED.size, at + MOVED.size + size
        if at > len(data):
            raise ValueError("a name that is cut")
        name = data[begin:at].decode("utf-8", "surrogatepass")
        moves.append(Moved(name, queue_id, None if was < 0 else was, now))
    return moves, at


def _moved(text: bytes) -> list[Moved]:
    """The rows of a record; none where they are not what this module writes, nor the JSON of
    builds before 0.2.0."""
    try:
        if text[:1] == TEXT_MAGIC:
            rows, _ = moves_in(text, 1)
        else:
            found: Any = parse_json(text, LIMITS["group_offsets"])
            rows = [Moved(*row) for row in found]
    except (TypeError, ValueError, struct.error):
        return []
    return rows if all(map(_makes_sense, rows)) else []


def _makes_sense(row: Moved) -> bool:
    numbers = (row.queue_id, row.now, row.was or 0)
    return type(row.key) is str and all(type(n) is int and 0 <= n < 1 << 63 for n in numbers)
