"""Which log a state belongs to: a physical offset, and a checksum of the bytes that end there.

A file that says how far something has come names an offset, and any log that is long enough has
that offset. So the file names the log, too: it keeps a `LogPlace` at or above everything that it
speaks of. A log that lost its tail has other bytes there, also once it has grown again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from rocketstore._native.format.codec import crc32c
from rocketstore._native.format.constants import (
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
)
from rocketstore._native.os.mapped_file import MappedFile

__all__ = ["TAIL_BYTES", "LogPlace", "place_at", "place_in", "stands", "tail_bytes"]

#: Bytes that a checksum covers: they hold the end of a record. Where its header, which names its offset
#: and time, is not among them, the header counts, too: bodies may end alike in each log.
TAIL_BYTES: Final = 4096
#: Bytes among which that header is looked for: these, and 16 times as many while there are less.
SEARCHED_MOST: Final = 1 << 24
_MAGICS: Final = [magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2)]
_start = attrgetter("start_offset")


class LogPlace(NamedTuple):
    """Where a state was made. In JSON it is `[end, crc]`."""

    #: Physical offset.
    end: int
    #: CRC-32C of the bytes that end there.
    crc: int


def place_at(files: Sequence[MappedFile], end: int) -> LogPlace:
    """The place at a physical offset, which is flushed: what is not may differ after a loss of
    power. `files`: those of the log, in order."""
    return LogPlace(end, _crc(files, end))


def stands(files: Sequence[MappedFile], place: LogPlace) -> bool | None:
    """Whether a log still has the bytes of a place. None: they were trimmed. A log that lost them,
    or in which a repair wrote over them, has not."""
    if place.end <= (files[0].start_offset if files else 0):
        return None
    return _crc(files, place.end) == place.crc


def place_in(value: object) -> LogPlace | None:
    """The place that a file has as JSON; None: it has none, or nonsense."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    end, crc = value
    whole = type(end) is int and type(crc) is int
    return LogPlace(end, crc) if whole and 0 <= end < 1 << 63 and 0 <= crc < 1 << 32 else None


def tail_bytes(files: Sequence[MappedFile], end: int, most: int = TAIL_BYTES) -> bytes:
    """The last bytes below a physical offset, of the file that they lie in; none where no file
    has them."""
    at = bisect_right(files, end - 1, key=_start) - 1
    if at < 0 or end > files[at].end_offset:
        return b""
    position = end - files[at].start_offset
    count = min(most, position)
    return bytes(files[at].read(position - count, count))


def _crc(files: Sequence[MappedFile], end: int) -> int:
    """Of bytes that end with the last one that is no zero: a gap at the end of a file is the same in
    each log. They lie in one file, since the one before it may be trimmed."""
    found = tail_bytes(files, end)
    while found and not any(found):
        end -= len(found)
        found = tail_bytes(files, end) if len(found) == TAIL_BYTES else b""
    # What begins with a blank has nothing of the record before it.
    end -= len(found) - len(found.rstrip(b"\0"))
    return crc32c(found and _far_header(files, end) + tail_bytes(files, end))


def _far_header(files: Sequence[MappedFile], end: int) -> bytes:
    """Of the last record below a physical offset; none where it lies in the last bytes, or nowhere."""
    most = TAIL_BYTES
    while most <= SEARCHED_MOST:
        found = tail_bytes(files, end, most)
        at = begin = len(found)
        while (at := max(found.rfind(magic, 0, at) for magic in _MAGICS)) >= MAGIC_AT:
            start, place = at - MAGIC_AT, at - MAGIC_AT + PHYSICAL_OFFSET_AT
            if found[place : place + 8] == (end - begin + start).to_bytes(8, "big"):
                return found[start : start + RECORD_BYTES_MIN] if most > TAIL_BYTES else b""
        most = 16 * most if begin == most else SEARCHED_MOST + 1
    return b""
