"""`rocketstore/queue_ends`: what a clean close knew of queues and index (format.md 20.9).

A clean open does not look into the directories of its queues, since there may be many. A queue that
ends below its saved end has lost files or units; its first use finds that. Queues may have grown
since, so saved ends are lower bounds. A queue that no close has seen has none. The digests of files
(`files_stamp`) hold until the first change after that close.
"""

from __future__ import annotations

import bisect
import logging
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Callable, Mapping
from typing import Final

from rocketstore._native.format.codec import crc32c
from rocketstore.log.layout.lock import rocketstore_wrote_last
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_state_file, remove_state_file, write_state_file
from rocketstore.log.queues.files_stamp import Stamp, index_stamp, queues_stamp
from rocketstore.log.queues.units import QUEUE_OFFSET_MAX

__all__ = [
    "FollowerEnds",
    "QueueEnds",
    "drop_queue_ends",
    "load_queue_ends",
    "queue_key",
    "save_queue_ends",
]

logger = logging.getLogger(__name__)

MAGIC: Final = b"RSQE"
VERSION: Final = 2
#: The same without digests; the tree wrote it before.
WITHOUT_STAMPS: Final = 1
MAX_BYTES: Final = 64 << 20
#: Magic, version, `log_end`, count of rows.
HEADER: Final = struct.Struct(">4sIqq")
#: A row, bytes: key and end.
ROW_BYTES: Final = 16
#: After the rows: the digests of queues and index.
STAMPS: Final = struct.Struct(">qIqI")
#: The digest of no files. A file that has it knows no digest.
UNKNOWN: Final = (-1, 0)


def queue_key(topic: str, queue_id: int) -> int:
    """64 bits for the name of a queue: its CRC-32 and its CRC-32C. Names that differ in eight bytes
    in a row at most never share theirs, two others of a million once in 30 million stores."""
    name = f"{topic}/{queue_id}".encode("utf-8", "surrogateescape")
    return zlib.crc32(name) << 32 | crc32c(name)


class QueueEnds:
    """Lower bounds of queue ends, of a log that was durable up to `log_end`; the digests of the
    files of queues and index at that time.

    Two sorted arrays: a store may have a million queues.
    """

    def __init__(
        self,
        log_end: int = 0,
        ends: Mapping[int, int] | None = None,
        stamps: tuple[Stamp, Stamp] = (UNKNOWN, UNKNOWN),
    ) -> None:
        """`ends`: by `queue_key`."""
        ends = ends or {}
        self.log_end = log_end
        self.stamps = stamps
        self._keys = array("Q", sorted(ends))
        self._ends = array("q", [ends[key] for key in self._keys])

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueEnds) and self._parts() == other._parts()

    def _parts(self) -> tuple[object, ...]:
        return self.log_end, self._keys, self._ends, self.stamps

    __hash__ = None  # type: ignore[assignment]

    def least(self, topic: str, queue_id: int) -> int:
        """The least end of a queue; 0 where nothing is known, or where no queue can end."""
        if not len(self):
            return 0
        key = queue_key(topic, queue_id)
        at = bisect.bisect_left(self._keys, key)
        end = self._ends[at] if at < len(self) and self._keys[at] == key else 0
        return end if 0 <= end <= QUEUE_OFFSET_MAX + 1 else 0

    def queues_untouched(self, layout: StoreLayout) -> bool:
        """Whether the files of the queues are as that close left them."""
        return _is(self.stamps[0], queues_stamp, layout)

    def index_untouched(self, layout: StoreLayout) -> bool:
        """The same of the files of the index."""
        return _is(self.stamps[1], index_stamp, layout)

    def with_ends(
        self, log_end: int, ends: Mapping[int, int], stamps: tuple[Stamp, Stamp]
    ) -> QueueEnds:
        """The same with other ends for some queues, of log and files as they are now."""
        known = dict(zip(self._keys, self._ends, strict=True))
        return QueueEnds(log_end, {**known, **ends}, stamps)

    def pack(self) -> bytes:
        rows = array("Q", bytes(2 * self._keys.itemsize * len(self)))
        rows[0::2] = self._keys
        rows[1::2] = array("Q", self._ends.tobytes())
        data = HEADER.pack(MAGIC, VERSION, self.log_end, len(self)) + _big_endian(rows).tobytes()
        data += STAMPS.pack(*self.stamps[0], *self.stamps[1])
        return data + crc32c(data).to_bytes(4, "big")

    @staticmethod
    def unpack(data: bytes) -> QueueEnds:
        """ValueError for bytes that `pack` did not make, and for another version."""
        if len(data) < HEADER.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
            raise ValueError("its checksum does not hold")
        magic, version, log_end, count = HEADER.unpack_from(data)
        end = HEADER.size + count * ROW_BYTES
        wanted = end + 4 + (STAMPS.size if version == VERSION else 0)
        if magic != MAGIC or version not in (WITHOUT_STAMPS, VERSION) or len(data) != wanted:
            raise ValueError(f"it is not of version {VERSION}")
        found = QueueEnds(log_end)
        if version == VERSION:
            stamps = STAMPS.unpack_from(data, end)
            found.stamps = stamps[:2], stamps[2:]
        rows = _big_endian(array("Q", data[HEADER.size : end]))
        found._keys, found._ends = rows[0::2], array("q", rows[1::2].tobytes())
        return found


def _is(stamp: Stamp, stamp_of: Callable[[StoreLayout], Stamp], layout: StoreLayout) -> bool:
    try:
        return stamp_of(layout) == stamp
    except OSError:
        return False


def _big_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def load_queue_ends(layout: StoreLayout, *, without_ends: bool = False) -> QueueEnds:
    """What the last close wrote; nothing if the file is missing or unreadable. `without_ends`: its
    digests alone, for queues that are made in memory."""
    try:
        found = QueueEnds.unpack(read_state_file(layout.queue_ends, MAX_BYTES))
        return QueueEnds(stamps=found.stamps) if without_ends else found
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        logger.warning("%s is no use: %s", layout.queue_ends, error)
    return QueueEnds()


def save_queue_ends(layout: StoreLayout, ends: QueueEnds) -> None:
    """Replaces the file. The caller has synced the units below these ends."""
    write_state_file(layout, layout.queue_ends, ends.pack())
    remove_state_file(layout.queue_files)


def drop_queue_ends(layout: StoreLayout) -> None:
    """Removes the file, durably."""
    remove_state_file(layout.queue_ends)


class FollowerEnds:
    """Saved queue ends, for a reader without the lock."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._ends = QueueEnds()
        self._seen: tuple[int, int] | None = None

    def least(self, topic: str, queue_id: int, found: int, log_end: int) -> int:
        """The least end of a queue whose units end at `found`, in a log that is dispatched up to
        `log_end`; at least `found`."""
        self._look()
        if found >= self._ends.least(topic, queue_id):
            return found
        if self._ends.log_end > log_end or not rocketstore_wrote_last(self._layout):
            return found
        return self._ends.least(topic, queue_id)

    def _look(self) -> None:
        """Loads the file again after a writer replaced or removed it."""
        try:
            found = os.stat(self._layout.queue_ends)
            seen = found.st_ino, found.st_mtime_ns
        except OSError:
            seen = 0, 0
        if seen != self._seen:
            self._ends = load_queue_ends(self._layout)
            self._seen = seen  # last: other threads ask meanwhile
