"""`rocketstore/queue_ends`: where queues ended when the store was closed (format.md 20.9).

A clean open does not look into the directories of its queues, there may be many. A queue that ends before
what is known here has lost files or units, which is noticed when it is used first: what was durable then
does not go by itself. A queue may have grown since, so these are lower bounds; one whose end was never seen
by a close has none.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy

from rocketstore._native.checkpoint import crc32c
from rocketstore.log.layout.atomic_files import read_state_file, remove_state_file, write_state_file
from rocketstore.log.layout.lock import rocketstore_wrote_last

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rocketstore.log.layout.paths import StoreLayout

__all__ = [
    "FollowedEnds",
    "QueueEnds",
    "drop_queue_ends",
    "load_queue_ends",
    "queue_key",
    "save_queue_ends",
]

logger = logging.getLogger(__name__)

MAGIC: Final = b"RSQE"
VERSION: Final = 1
MAX_BYTES: Final = 1 << 30
HEADER: Final = numpy.dtype(
    [("magic", "S4"), ("version", ">u4"), ("log_end", ">i8"), ("count", ">i8")]
)
ROW: Final = numpy.dtype([("key", ">u8"), ("end", ">i8")])


def queue_key(topic: str, queue_id: int) -> int:
    """64 bits for the name of a queue: its CRC-32 and its CRC-32C. Names that differ in eight bytes in a row
    at most never share theirs, two others of a million once in 30 million stores."""
    name = f"{topic}/{queue_id}".encode("utf-8", "surrogateescape")
    return zlib.crc32(name) << 32 | crc32c(name)


class QueueEnds:
    """Lower bounds of queue ends, of a log that was durable up to `log_end`."""

    def __init__(self, log_end: int = 0, ends: Mapping[int, int] | None = None) -> None:
        """`ends`: by `queue_key`."""
        ends = ends or {}
        self.log_end = log_end
        keys: NDArray[numpy.uint64] = numpy.fromiter(ends.keys(), "u8", len(ends))
        self._keys, places = numpy.unique(keys, return_index=True)
        self._ends: NDArray[numpy.int64] = numpy.fromiter(ends.values(), "i8", len(ends))[places]

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueEnds) and self.pack() == other.pack()

    __hash__ = None  # type: ignore[assignment]

    def least(self, topic: str, queue_id: int) -> int:
        """What the queue ended at, at least; 0 where nothing is known."""
        if not len(self._keys):
            return 0
        key = numpy.uint64(queue_key(topic, queue_id))
        at = int(self._keys.searchsorted(key))
        return int(self._ends[at]) if at < len(self._keys) and self._keys[at] == key else 0

    def with_ends(self, log_end: int, ends: Mapping[int, int]) -> QueueEnds:
        """The same with other ends for some queues, of the log as it is now."""
        other, merged = QueueEnds(log_end, ends), QueueEnds(log_end)
        keys = numpy.concatenate((other._keys, self._keys))
        merged._keys, places = numpy.unique(keys, return_index=True)  # of two the first one
        merged._ends = numpy.concatenate((other._ends, self._ends))[places]
        return merged

    def pack(self) -> bytes:
        header = numpy.array([(MAGIC, VERSION, self.log_end, len(self))], HEADER)
        rows = numpy.empty(len(self), ROW)
        rows["key"], rows["end"] = self._keys, self._ends
        data = header.tobytes() + rows.tobytes()
        return data + crc32c(data).to_bytes(4, "big")

    @staticmethod
    def unpack(data: bytes) -> QueueEnds:
        """ValueError for what nobody has packed, and for another version."""
        if len(data) < HEADER.itemsize + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
            raise ValueError("its checksum does not hold")
        header = numpy.frombuffer(data, HEADER, 1)[0]
        wanted = HEADER.itemsize + int(header["count"]) * ROW.itemsize + 4
        if (header["magic"], header["version"]) != (MAGIC, VERSION) or len(data) != wanted:
            raise ValueError(f"it is not of version {VERSION}")
        rows = numpy.frombuffer(data[HEADER.itemsize : -4], ROW)
        found = QueueEnds(int(header["log_end"]))
        found._keys, found._ends = rows["key"].astype("u8"), rows["end"].astype("i8")
        return found


def load_queue_ends(layout: StoreLayout) -> QueueEnds:
    """What the last close wrote; nothing is known where it is missing, or no such file."""
    try:
        return QueueEnds.unpack(read_state_file(layout.queue_ends, MAX_BYTES))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        logger.warning("%s is no use: %s", layout.queue_ends, error)
    return QueueEnds()


def save_queue_ends(layout: StoreLayout, ends: QueueEnds) -> None:
    """Replaces the file. Units below these ends are durable before."""
    write_state_file(layout, layout.queue_ends, ends.pack())


def drop_queue_ends(layout: StoreLayout) -> None:
    """Nothing is known any more; durable when this returns."""
    remove_state_file(layout.queue_ends)


class FollowedEnds:
    """What a reader without the lock knows of queue ends."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._ends = QueueEnds()
        self._seen: tuple[int, int] | None = None

    def least(self, topic: str, queue_id: int, found: int, log_end: int) -> int:
        """What a queue ended at that seems to end at `found`, at least `found`, in a log that queues cover up
        to `log_end`."""
        self._look()
        if found >= self._ends.least(topic, queue_id):
            return found
        if self._ends.log_end > log_end or not rocketstore_wrote_last(self._layout):
            return found
        return self._ends.least(topic, queue_id)

    def _look(self) -> None:
        """A writer replaces the file, or drops it."""
        try:
            found = os.stat(self._layout.queue_ends)
            seen = found.st_ino, found.st_mtime_ns
        except OSError:
            seen = 0, 0
        if seen != self._seen:
            self._ends = load_queue_ends(self._layout)
            self._seen = seen  # behind it: other threads ask meanwhile
