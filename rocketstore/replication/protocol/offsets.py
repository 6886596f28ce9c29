"""OFFSETS frames: what a master has stored for its groups, whole or changed since.

The body of a frame begins with three fields: the kind of its content (`OF_GROUPS`), its flags, and
the physical offset `Offsets.end`. Rows follow, one for each group:

    bytes of the key "topic@group", number of pairs, the key, the pairs: queue id, next queue offset

The master sends a row without pairs for a group that it has no more. It splits a group that does not
fit into one frame into several rows of the same key, and the replica puts these together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from rocketstore.consuming.offset_tables import MAX_OFFSET, offsets_of, split_key
from rocketstore.replication.protocol.frames import OFFSETS_MOST, Kind, frame
from rocketstore.replication.protocol.link import Offsets

__all__ = ["TABLE_MOST", "OffsetsReader", "changed_offsets", "offset_frames"]

#: The first fields of a body: the kind of its content, its flags, `Offsets.end`.
HEAD: Final = struct.Struct(">BBQ")
ROW: Final = struct.Struct(">HI")
PAIR: Final = struct.Struct(">IQ")
#: The only kind of content: next offsets of groups.
OF_GROUPS: Final = 1
#: All groups that there are, and not what changed. The last frame of these offsets.
WHOLE: Final = 1
LAST: Final = 2
KEY_BYTES_MOST: Final = 0xFFFF
#: Bytes that all frames of one table may have: as many as its file may have.
TABLE_MOST: Final = 64 << 20
QUEUE_IDS: Final = 1 << 31


def changed_offsets(
    before: Mapping[str, object] | None, after: Mapping[str, object]
) -> dict[str, dict[int, int]]:
    """What two tables of stored offsets differ in: the rows of `after`, {} of a group that is gone.
    Before None nothing was known. A row that is the same object did not change."""
    known = before or {}
    found: dict[str, dict[int, int]] = {}
    for key, row in after.items():
        if known.get(key) is not row and split_key(key) is not None:
            offsets = dict(offsets_of(row))
            if offsets or key in known:
                found[key] = offsets
    found.update({key: {} for key in known if key not in after and split_key(key) is not None})
    return found


def offset_frames(offsets: Offsets) -> Iterator[bytes]:
    """The frames that say so, at least one."""
    body = bytearray()
    for row in _rows(offsets.groups):
        if len(body) + len(row) + HEAD.size > OFFSETS_MOST:
            yield _frame(offsets, body, 0)
            body.clear()
        body += row
    yield _frame(offsets, body, LAST)


def _frame(offsets: Offsets, rows: bytearray, flags: int) -> bytes:
    if offsets.whole:
        flags |= WHOLE
    return frame(Kind.OFFSETS, HEAD.pack(OF_GROUPS, flags, offsets.end) + rows)


def _rows(groups: Mapping[str, Mapping[int, int]]) -> Iterator[bytes]:
    for key, row in groups.items():
        name = key.encode("utf-8", "surrogatepass")
        most = (OFFSETS_MOST - HEAD.size - ROW.size - len(name)) // PAIR.size
        if len(name) > KEY_BYTES_MOST or most < 1:
            continue  # no topic and group of ours
        pairs = list(row.items())
        for at in range(0, max(1, len(pairs)), most):
            some = pairs[at : at + most]
            yield b"".join(
                [ROW.pack(len(name), len(some)), name, *(PAIR.pack(*pair) for pair in some)]
            )


class OffsetsReader:
    """Puts the frames of one table together."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, int]] = {}
        self._size = 0
        self._first: tuple[bool, int] | None = None
        self._begun = False

    def take(self, body: memoryview, came: int) -> Offsets | None:
        """The offsets, once the last of their frames has come. `came`: the end of the log that came.

        Raises:
            ValueError: what no master says.
        """
        what, flags, end = HEAD.unpack_from(body)
        whole = bool(flags & WHOLE)
        if what != OF_GROUPS or flags & ~(WHOLE | LAST) or end > came:
            raise ValueError(f"of {what} with flags {flags:#x} at {end}, the log came up to {came}")
        if self._first not in (None, (whole, end)) or not (whole or self._begun):
            raise ValueError("a part of other offsets, or changes before the whole")
        self._first = (whole, end)
        self._size += len(body)
        if self._size > TABLE_MOST:
            raise ValueError(f"more than {TABLE_MOST} bytes")
        self._take_rows(body[HEAD.size :])
        if not flags & LAST:
            return None
        found = Offsets(end, whole, self._groups, self._size)
        self._groups, self._size, self._first, self._begun = {}, 0, None, True
        return found

    def _take_rows(self, rows: memoryview) -> None:
        while len(rows):
            length, count = ROW.unpack_from(rows)
            size = ROW.size + length + count * PAIR.size
            if size > len(rows):
                raise ValueError(f"a row of {size} bytes in {len(rows)}")
            key = bytes(rows[ROW.size : ROW.size + length]).decode("utf-8", "surrogatepass")
            if split_key(key) is None:
                raise ValueError(f"{key!r:.80} is no topic@group")
            row = self._groups.setdefault(key, {})
            for queue_id, offset in PAIR.iter_unpack(rows[ROW.size + length : size]):
                if queue_id >= QUEUE_IDS or offset > MAX_OFFSET:
                    raise ValueError(f"queue {queue_id} at {offset}")
                row[queue_id] = offset
            rows = rows[size:]
