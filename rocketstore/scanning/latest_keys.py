"""`LatestKeys`: which message is the latest of its key, out of the columns of a scan.

A key is the text of `KEYS` as a whole, and counts for its topic; the last message in the log is the
latest. `services.compaction` copies these into a store, `services.retention` puts them again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from rocketstore.errors import MessageRejectedError
from rocketstore.values.system_flags import INNER_BATCH

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rocketstore.columns import Columns

    Hashes = NDArray[np.uint64]
    Marks = NDArray[np.int64]

__all__ = ["COLUMNS", "MARK_BITS", "NOT_DELIVERED", "OLD", "TOMBSTONE", "LatestKeys", "keys_of"]

#: What `LatestKeys` and its users read of a record.
COLUMNS: Final = (
    *("topic", "keys", "sys_flag", "queue_id", "queue_offset", "physical_offset"),
    *("size", "body_size", "store_timestamp_ms"),
)
#: Prepared and rolled back records have this bit; no consumer is given them.
NOT_DELIVERED: Final = 0x4
#: A mark of `LatestKeys` is a physical offset and two bits: the message is a tombstone, and it is
#: older than the grace.
MARK_BITS: Final = 2
TOMBSTONE: Final = 2
OLD: Final = 1
#: Parts by the first bits of a hash: a part is sorted at a time, so that what sorting needs is
#: small.
PART_BITS: Final = 6
#: Rows that wait, in a part, before they are sorted in at all, a count.
WAITING_LEAST: Final = 4096


class LatestKeys:
    """The latest message of each key, in about 36 bytes a key.

    Keys by a hash of 128 bits of BLAKE2b over a secret of this object: nobody can choose keys of
    one hash, and among 10^10 keys two have one with a probability below 10^-18.

    A mark is a number that rises from message to message; of each key the last one stays.
    """

    def __init__(self) -> None:
        parts = 1 << PART_BITS
        self._secret = secrets.token_bytes(16)
        self._hashes: list[Hashes] = [np.empty((0, 2), np.uint64) for _ in range(parts)]
        self._marks: list[Marks] = [np.empty(0, np.int64) for _ in range(parts)]
        self._waiting: list[list[tuple[Hashes, Marks]]] = [[] for _ in range(parts)]
        self._counts = [0] * parts
        #: Messages with a key, without one, and those that no consumer is given, so far.
        self.keyed = self.keyless = self.hidden = 0

    def prefix(self, topic: str) -> bytes:
        """What is hashed before a key of this topic."""
        return self._secret + topic.encode("utf-8", "surrogateescape") + b"\0"

    def take_up(self, chunk: Columns, old_ms: int | None, base: int = 0) -> None:
        """The rows of a scan with `COLUMNS`, after those before them in the log. A mark is the
        physical offset beyond `base`. `old_ms`: tombstones stored before it are old; None: an empty
        body is none. MessageRejectedError for an inner batch."""
        _refuse_batches(chunk)
        delivered = chunk["sys_flag"] & NOT_DELIVERED == 0
        found = list(keys_of(chunk, np.flatnonzero(delivered).tolist(), self))
        self.hidden += int((~delivered).sum())
        self.keyless += int(delivered.sum()) - len(found)
        self.keyed += len(found)
        marks = (chunk["physical_offset"].astype(np.int64) + base) << MARK_BITS
        if old_ms is not None:
            dead = chunk["body_size"] == 0
            marks |= np.where(dead, TOMBSTONE, 0)
            marks |= np.where(dead & (chunk["store_timestamp_ms"] < old_ms), OLD, 0)
        self.add([key for _, key in found], marks[[row for row, _ in found]].tolist())

    def add(self, keys: Sequence[bytes], marks: Sequence[int]) -> None:
        """Keys after their prefix, in the order of the log, and their marks."""
        if not keys:
            return
        digests = b"".join([hashlib.blake2b(key, digest_size=16).digest() for key in keys])
        hashes = np.frombuffer(digests, np.uint64).reshape(-1, 2)
        parts = hashes[:, 0] >> np.uint64(64 - PART_BITS)
        order = np.argsort(parts, kind="stable")
        numbers = np.asarray(marks, np.int64)[order]
        hashes, parts = hashes[order], parts[order]
        bounds = np.searchsorted(parts, np.arange(1 << PART_BITS, dtype=np.uint64)).tolist()
        for part, (low, high) in enumerate(zip(bounds, [*bounds[1:], len(keys)], strict=True)):
            if low == high:
                continue
            self._waiting[part].append((hashes[low:high], numbers[low:high]))
            self._counts[part] += high - low
            if self._counts[part] >= max(WAITING_LEAST, len(self._marks[part]) // 2):
                self._merge(part)

    def between(self, low: int, high: int) -> Marks:
        """The marks in [low, high) of latest messages, rising. What is lower is forgotten."""
        for part in range(len(self._marks)):
            self._merge(part)
            kept = self._marks[part] >= low
            self._hashes[part], self._marks[part] = (
                self._hashes[part][kept],
                self._marks[part][kept],
            )
        marks = np.concatenate(self._marks)
        return np.sort(marks[marks < high])

    def take(self) -> Marks:
        """The mark of the latest message of each key, rising; nothing is left here."""
        found = []
        for part in range(len(self._marks)):
            self._merge(part)
            found.append(self._marks[part])
            self._hashes[part] = np.empty((0, 2), np.uint64)
            self._marks[part] = np.empty(0, np.int64)
        marks = np.concatenate(found)
        marks.sort()
        return marks

    def _merge(self, part: int) -> None:
        rows = [(self._hashes[part], self._marks[part]), *self._waiting[part]]
        hashes = np.concatenate([one for one, _ in rows])
        marks = np.concatenate([one for _, one in rows])
        self._waiting[part], self._counts[part] = [], 0
        order = np.lexsort((marks, hashes[:, 1], hashes[:, 0]))
        hashes, marks = hashes[order], marks[order]
        last = np.ones(len(marks), bool)
        last[:-1] = (hashes[1:] != hashes[:-1]).any(axis=1)
        self._hashes[part], self._marks[part] = hashes[last], marks[last]


def keys_of(
    chunk: Columns, rows: Iterable[int], table: LatestKeys | None
) -> Iterator[tuple[int, bytes]]:
    """Those of the rows that have a key which is not blank, and it, after the prefix of its
    topic."""
    column, topics = chunk["keys"], chunk["topic"]
    data, ends = column.data.tobytes(), column.offsets.tolist()
    prefixes = [b"" if table is None else table.prefix(topic) for topic in topics.values]
    codes = topics.codes.tolist()
    for row in rows:
        key = data[ends[row] : ends[row + 1]]
        if key and not key.isspace():
            yield row, prefixes[codes[row]] + key


def _refuse_batches(chunk: Columns) -> None:
    batches = np.flatnonzero(chunk["sys_flag"] & INNER_BATCH)
    if len(batches):
        offset = int(chunk["physical_offset"][batches[0]])
        raise MessageRejectedError(
            f"the record at {offset} is an inner batch: its messages have one place together, and "
            "keys of their own; the job `compact` of rocketstore.spark takes them apart"
        )
