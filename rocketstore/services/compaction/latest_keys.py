"""The latest message of each key, in about 36 bytes a key."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]
    Marks = NDArray[np.int64]

__all__ = ["LatestKeys"]

#: Parts by the first bits of a hash: a part is sorted at a time, so that what sorting needs is
#: small.
PART_BITS: Final = 6
#: Rows that wait, in a part, before they are sorted in at all, a count.
WAITING_LEAST: Final = 4096


class LatestKeys:
    """Keys by a hash of 128 bits of BLAKE2b over a secret of this object: nobody can choose keys of
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

    def prefix(self, topic: str) -> bytes:
        """What is hashed before a key of this topic."""
        return self._secret + topic.encode("utf-8", "surrogateescape") + b"\0"

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
