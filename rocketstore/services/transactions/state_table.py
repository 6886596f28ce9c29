"""Reads the transaction state table and the redo log of RocketMQ 3.1 (format.md 11.4).

No release after 3.1.4 writes them, and no store of ours does: this explains what such a store left.
`rebuild` makes the table from the redo log as 3.1 did after a crash, without its faults (K-69).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketstore.errors import CorruptRecordError, MessageNotFoundError, OffsetOutOfRangeError

__all__ = ["RedoEntry", "StateEntry", "group_hash", "read_redo_log", "read_state_table", "rebuild"]

#: Physical offset, size, store time in seconds, hash of the producer group, state.
SLOT: Final = struct.Struct(">qiiii")
#: Physical offset, size, tag code.
UNIT: Final = struct.Struct(">qiq")
STATES: Final = {4: "prepared", 8: "commit", 12: "rollback"}
REDO_QUEUE: Final = "transaction/redolog/TRANSACTION_REDOLOG_TOPIC_XXXX/0"
#: Tag code of a prepared record in the redo log.
PREPARED: Final = -1


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One slot of the table: `slot` is what the queue offset of the prepared record says."""

    slot: int
    physical_offset: int
    size: int
    store_time_s: int
    group_hash: int
    state: str

    def __bytes__(self) -> bytes:
        number = next(number for number, state in STATES.items() if state == self.state)
        place = (self.physical_offset, self.size)
        return SLOT.pack(*place, self.store_time_s, self.group_hash, number)


@dataclass(frozen=True, slots=True)
class RedoEntry:
    """One unit of the redo log: a prepared record, or the end of the one at `settles`."""

    physical_offset: int
    size: int
    settles: int | None


def read_state_table(root: Path) -> Iterator[StateEntry]:
    """The entries of a store's state table, in the order of their slots, up to the first slot that
    is none: files are made with zeros to their whole length."""
    for number, place in _slots(root / "transaction/statetable", SLOT.size):
        physical_offset, size, store_time_s, hashed, state = SLOT.unpack(place)
        if physical_offset < 0 or size <= 0 or state not in STATES:
            return
        yield StateEntry(number, physical_offset, size, store_time_s, hashed, STATES[state])


def read_redo_log(root: Path) -> Iterator[RedoEntry]:
    """The entries of a store's redo log, in the order in which its records were dispatched."""
    for _, place in _slots(root / REDO_QUEUE, UNIT.size):
        physical_offset, size, code = UNIT.unpack(place)
        if physical_offset < 0 or size <= 0 or code < PREPARED:
            return
        yield RedoEntry(physical_offset, size, None if code == PREPARED else code)


def rebuild(
    redo: Iterable[RedoEntry], details: Callable[[RedoEntry], tuple[int, str]]
) -> list[StateEntry]:
    """The state table that a redo log stands for: one prepared slot for each record without an end,
    in the order of the log, numbered from 0.

    `details` gives the store time in ms and the producer group of a prepared record. One that the
    log no longer holds (MessageNotFoundError, OffsetOutOfRangeError, CorruptRecordError) gets no
    slot, since nobody can end it.
    """
    open_ones: dict[int, RedoEntry] = {}
    for entry in redo:
        if entry.settles is None:
            open_ones[entry.physical_offset] = entry
        else:
            open_ones.pop(entry.settles, None)
    made: list[StateEntry] = []
    for entry in open_ones.values():
        try:
            store_ms, group = details(entry)
        except (MessageNotFoundError, OffsetOutOfRangeError, CorruptRecordError):
            continue
        place = (len(made), entry.physical_offset, entry.size)
        made.append(StateEntry(*place, store_ms // 1000, group_hash(group), STATES[4]))
    return made


def group_hash(group: str) -> int:
    """Java's hash of a text, as the table has it: signed, 32 bits, over UTF-16 units."""
    found = 0
    raw = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(raw), 2):
        found = (31 * found + int.from_bytes(raw[at : at + 2], "big")) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def _slots(directory: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each whole slot of a queue of files, which are named by their offset. A
    gap between two files ends it."""
    if not directory.is_dir():
        return
    expected: int | None = None
    for path in sorted(path for path in directory.iterdir() if path.name.isdecimal()):
        begin = int(path.name)
        if expected not in (None, begin):
            return
        with path.open("rb") as file:
            at = begin
            while len(place := file.read(size)) == size:
                yield at // size, place
                at += size
        expected = begin + path.stat().st_size
