"""Where a micro-batch may begin and end: always where a record does, and never before the first
one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import rocketstore
from rocketstore import CorruptRecordError, MessageNotFoundError, OffsetOutOfRangeError, Store
from rocketstore.scanning import message_counts

if TYPE_CHECKING:
    from rocketstore import Message
    from rocketstore.columns import Columns

__all__ = ["by_bytes", "by_rows", "first_wanted", "holds_rows", "record_start"]

#: Bytes before an offset in which the record that covers it is looked for at first.
LOOK_BACK_BYTES = 1 << 20
UNREADABLE = (CorruptRecordError, MessageNotFoundError, OffsetOutOfRangeError)


def by_bytes(store: Store, begin: int, end: int, most: int) -> int:
    """The start of a record about `most` bytes after `begin`, or the end of the first one if that
    is larger; `end` when that is near. A record, a blank or a file starts at `begin`."""
    near = begin + 2 * most
    while end - begin > most:
        near = min(near, end)
        scan = _walk(store, begin, near)
        cut = int(scan.split(max(most, (near - begin) // 2))[0].end_offset)
        if cut < near or near == end:
            return cut
        # The last record before `near` reaches beyond it: no other begins in reach.
        reached = _reached(scan)
        if reached > begin:
            return min(reached, end)
        near = begin + 2 * (near - begin)  # nothing but a blank, or damage
    return end


def by_rows(store: Store, begin: int, end: int, most: int, wanted: dict[str, Any]) -> int:
    """The offset after the first `most` messages that are wanted, or after the record that alone
    has more."""
    taken = 0
    for columns in _walk(store, begin, end, **wanted):
        upto = taken + np.cumsum(_messages_in(store, columns))
        if upto[-1] >= most:
            fit = int(np.searchsorted(upto, most, side="right"))
            if fit == 0 and taken:
                return int(columns["physical_offset"][0])
            last = max(0, fit - 1)
            return int(columns["physical_offset"][last]) + int(columns["size"][last])
        taken = int(upto[-1])
    return end


def holds_rows(store: Store, begin: int, end: int, least: int, wanted: dict[str, Any]) -> bool:
    """Whether the range has `least` wanted messages."""
    found = 0
    for columns in _walk(store, begin, end, **wanted):
        found += int(np.sum(_messages_in(store, columns)))
        if found >= least:
            return True
    return False


def first_wanted(
    store: Store, begin: int, end: int, wanted: dict[str, Any], verify: bool
) -> int | None:
    """Where the first record with a message that is wanted begins; `begin` where damage comes before
    it, which may have been one; None without either."""
    scan = _walk(store, begin, end, verify=verify, **wanted)
    for columns in scan:
        there = np.flatnonzero(_messages_in(store, columns))
        if there.size:
            place = int(columns["physical_offset"][there[0]])
            damage = scan.report.damage
            return begin if damage and damage[0].start < place else place
    return begin if scan.report.damage_count else None


def _messages_in(store: Store, columns: Columns) -> Any:
    def record_at(place: int) -> Message | None:
        try:
            return store.get(place)
        except UNREADABLE:  # the reader reports it
            return None

    return message_counts(columns, record_at)


def record_start(store: Store, place: int) -> int:
    """`place`, or the end of the record or blank that it lies in.

    Micro-batches of an earlier release could end within a record when `maxBytesPerTrigger` was
    smaller than that. They held it as a whole, so the next one begins after it. Anything else stays
    as it is: the reader reports damage, and what was trimmed just now.
    """
    low, end = store.begin_offset, store.visible_offset
    if not low < place < end or _holds(store, place):
        return place
    first, back, reached = place, LOOK_BACK_BYTES, 0
    try:
        while not reached and first > low:
            first = max(low, place - back)
            reached = _reached(_walk(store, first, place, aligned=first == low, damage="raise"))
            back *= 2
        if 0 < reached < place:
            for columns in _walk(store, place, end, aligned=False, damage="raise"):
                return int(columns["physical_offset"][0])
    except UNREADABLE:
        return place
    return max(place, min(reached, end))


def _holds(store: Store, place: int) -> bool:
    """Whether a record, a blank or a file starts there."""
    try:
        return all(True for _ in _walk(store, place, place + 1, damage="raise"))
    except UNREADABLE:
        return False


def _walk(
    store: Store,
    begin: int,
    end: int,
    /,
    *,
    damage: Literal["raise", "skip"] = "skip",
    aligned: bool = True,
    verify: bool = False,
    system_topics: bool = True,
    **wanted: Any,
) -> Any:
    """A scan of [begin, end): by itself of every record, so that places are between two of them."""
    return rocketstore.scan(
        store,
        columns=("physical_offset", "size", "sys_flag"),
        begin_offset=begin,
        end_offset=end,
        aligned=aligned,
        verify=verify,
        on_damage=damage,
        threads=1,
        system_topics=system_topics,
        **wanted,
    )


def _reached(scan: Any) -> int:
    """Where the last record of a scan ends; 0 without one."""
    reached = 0
    for columns in scan:
        if columns.rows:
            reached = int(columns["physical_offset"][-1]) + int(columns["size"][-1])
    return reached
