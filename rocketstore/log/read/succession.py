"""A `ReadSource` that goes over to another one, for readers that outlive what they opened."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError, MessageNotFoundError, OffsetOutOfRangeError
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.log.read.reader import Reader
from rocketstore.log.read.source import QueueView, ReadSource

__all__ = ["Succession", "fingerprint"]

#: Longest wait before a waiting reader looks for a newer source, ms.
LOOK_MS: Final = 50


T = TypeVar("T")


class Succession:
    """A `ReadSource` that hands each call to the source of the newest engine, and looks for a newer
    one before it says that there is nothing more."""

    def __init__(self, first: ReadSource, look: Callable[[], None]) -> None:
        self.now = first
        self.look = look
        self.holders = first.holders
        self.arrival = _Arrival(self)

    def turn(self, newer: ReadSource) -> None:
        self.arrival.base = self.arrival.base + self.now.arrival.count + 1
        newer.holders = self.holders
        self.now = newer

    @property
    def segment_size(self) -> int:
        return self.now.segment_size

    @property
    def verify(self) -> int:
        return self.now.verify

    def check(self, *, now: bool = False) -> None:
        if now:
            self.look()
        self.now.check(now=now)

    def topics(self) -> Sequence[str]:
        self.look()
        return self.now.topics()

    def queues(self, topic: str, /) -> Sequence[int]:
        self.look()
        return self.now.queues(topic)

    def queue(self, topic: str, queue_id: int, /) -> QueueView | BatchQueue | None:
        return self.now.queue(topic, queue_id)

    def segments(self) -> tuple[MappedFile, ...]:
        return self.now.segments()

    def minimum(self) -> int:
        return self.now.minimum()

    def visible(self) -> int:
        return self.now.visible()

    def time_breaks(self) -> Sequence[tuple[int, int]]:
        return self.now.time_breaks()

    def catch_up(self) -> None:
        self.look()
        self.now.catch_up()

    def again(self, look: Callable[[], T], error: Exception, /) -> T:
        return self.now.again(look, error)


class _Arrival:
    """Counts on over all sources."""

    def __init__(self, source: Succession) -> None:
        self.base = 0
        self._source = source

    @property
    def count(self) -> int:
        self._source.look()
        return self.base + self._source.now.arrival.count

    def wait(self, seen: int, timeout_ms: int | None, /) -> int:
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while (count := self.count) == seen:
            left_ms = LOOK_MS
            if deadline is not None:
                left_ms = min(left_ms, int((deadline - time.monotonic()) * 1000 + 0.999))
                if left_ms <= 0:
                    return count
            self._source.now.arrival.wait(seen - self.base, left_ms)
            self._source.now.check()
        return count


def fingerprint(reader: Reader, physical_offset: int) -> tuple[int, int, int] | None:
    """Store time, length and CRC of the body of one record; None where none begins."""
    if physical_offset < 0:
        return None
    try:
        message = reader.get(physical_offset, verify=0)
    except (CorruptRecordError, MessageNotFoundError, OffsetOutOfRangeError):
        return None
    body = message.body
    return message.store_timestamp_ms, len(body), zlib.crc32(body)
