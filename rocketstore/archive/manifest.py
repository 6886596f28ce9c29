"""`manifest.json`: which segments lie in an archive, and what is known of each without opening it.

A manifest is believed in parts only: what contradicts itself, or could lead outside of the archive,
is refused as a whole. Objects are read by the pieces that it names, each with its checksum.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from rocketstore.errors import ConfigError, ReadFailedError
from rocketstore.log.layout.paths import segment_name
from rocketstore.values.bounded_json import LIMITS, parse_json

__all__ = ["FORMAT", "MANIFEST_NAME", "TAIL", "VERSION", "Manifest", "Piece", "Segment"]

MANIFEST_NAME: Final = "manifest.json"
FORMAT: Final = "rocketstore-archive"
VERSION: Final = 2
#: Of a manifest that names no tail: releases up to 0.1 read it.
WITHOUT_TAIL: Final = 1
#: Suffix of an object that has the begin of a segment that is not full.
TAIL: Final = ".tail"
#: Topics that an entry lists; a segment with more is looked into whatever topics are wanted.
TOPICS_MAX: Final = 1000

#: Where a piece ends within its segment, and the CRC-32 of its bytes. A record begins where a piece
#: does.
Piece = tuple[int, int]


@dataclass(frozen=True)
class Segment:
    """One object: [start_offset, end_offset) of the log, byte for byte."""

    start_offset: int
    size: int
    #: CRC-32 of the whole object.
    crc32: int
    records: int
    #: Smallest and largest store time, milliseconds; None without a record.
    store_times_ms: tuple[int, int] | None
    #: Names of all topics, sorted; None: too many to list.
    topics: tuple[str, ...] | None
    #: Whether RocketMQ may have written here: its record checksums may be stale.
    foreign: bool
    pieces: tuple[Piece, ...]
    #: Of the begin of a segment that is not full: the size of that segment. 0: a whole segment.
    tail_of: int = 0

    @property
    def name(self) -> str:
        """A tail has a name of its own: a longer one may replace it, it never replaces a whole
        segment."""
        return segment_name(self.start_offset) + (TAIL if self.tail_of else "")

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(end for end, _ in self.pieces[:-1])]

    def piece(self, position: int) -> tuple[int, int, int]:
        """Begin, end and CRC-32 of the piece that holds a position of the segment."""
        number = bisect_right(self._starts, position) - 1
        end, crc32 = self.pieces[number]
        return self._starts[number], end, crc32

    def cut(self, position: int) -> int:
        """The first begin of a piece at or after a position; the segment's end when there is
        none."""
        begin, end, _ = self.piece(position)
        return begin if begin == position else end

    def _document(self) -> dict[str, Any]:
        return {
            "start_offset": self.start_offset,
            "size": self.size,
            "crc32": self.crc32,
            "records": self.records,
            "store_times_ms": self.store_times_ms,
            "topics": self.topics,
            "foreign": self.foreign,
            "pieces": self.pieces,
            **({"tail_of": self.tail_of} if self.tail_of else {}),
        }


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json. `store`: the store's uuid; empty where only RocketMQ wrote.
    Segments are sorted and apart; what lies between them is not in the archive."""

    store: str
    segments: tuple[Segment, ...] = ()
    #: Where nothing shows that what follows is of the history of what lies before.
    parted: tuple[int, ...] = ()

    @property
    def begin_offset(self) -> int:
        return self.segments[0].start_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0

    def with_segment(self, segment: Segment) -> Manifest:
        """The same with one more; it replaces the one that begins there."""
        others = [s for s in self.segments if s.start_offset != segment.start_offset]
        found = sorted([*others, segment], key=lambda s: s.start_offset)
        return replace(self, segments=tuple(found))

    def dump(self) -> bytes:
        """One segment a line, so that people can look at it."""
        lines = ",\n".join(
            json.dumps(s._document(), ensure_ascii=False, separators=(",", ":"))
            for s in self.segments
        )
        head = json.dumps(
            {
                "format": FORMAT,
                "version": VERSION if any(s.tail_of for s in self.segments) else WITHOUT_TAIL,
                "store": self.store,
                "end_offset": self.end_offset,
                **({"parted": self.parted} if self.parted else {}),
            }
        )
        return f'{head[:-1]}, "segments": [\n{lines}\n]}}\n'.encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> Manifest:
        """
        Raises:
            ReadFailedError: these bytes are no manifest, or one that contradicts itself.
            ConfigError: a newer release wrote it.
        """
        try:
            found: Any = parse_json(data, LIMITS["archive"])
            if found["format"] != FORMAT:
                raise ValueError(f"format = {found['format']!r}: {FORMAT!r}")
            version = _whole(found["version"], 1)
        except (ValueError, TypeError, KeyError) as error:
            raise ReadFailedError(f"{where} is no manifest of an archive: {error!r}") from error
        if version > VERSION:
            allowed = f"this release reads up to {VERSION}; read it with a newer rocketstore"
            raise ConfigError(f"version in {where}", version, allowed)
        try:
            segments = tuple(map(_segment, found["segments"]))
            _check_apart(segments)
            parted = tuple(map(_whole, found.get("parted", ())))
            manifest = cls(_text(found["store"]), segments, parted)
            if found["end_offset"] != manifest.end_offset:
                raise ValueError(f"end_offset = {found['end_offset']!r}: {manifest.end_offset}")
        except (ValueError, TypeError, KeyError) as error:
            raise ReadFailedError(f"{where} contradicts itself: {error!r}") from error
        return manifest


def _segment(found: Any) -> Segment:
    start, size = _whole(found["start_offset"]), _whole(found["size"], 1)
    pieces = tuple((_whole(end, 1), _whole(crc32, 0, 2**32)) for end, crc32 in found["pieces"])
    ends = [end for end, _ in pieces]
    if ends != sorted(set(ends)) or ends[-1:] != [size]:
        raise ValueError(f"pieces of segment {start}: their ends rise up to {size}")
    times = found["store_times_ms"]
    if times is not None:
        first, last = times
        times = (_signed(first), _signed(last))
    topics = found["topics"]
    return Segment(
        start_offset=start,
        size=size,
        crc32=_whole(found["crc32"], 0, 2**32),
        records=_whole(found["records"]),
        store_times_ms=times,
        topics=None if topics is None else tuple(map(_text, topics)),
        foreign=found["foreign"] is not False,
        pieces=pieces,
        tail_of=_whole(found["tail_of"], size + 1) if "tail_of" in found else 0,
    )


def _check_apart(segments: Iterable[Segment]) -> None:
    end = 0
    for segment in segments:
        if segment.start_offset < end:
            raise ValueError(f"segment {segment.start_offset}: the one before ends at {end}")
        end = segment.end_offset


def _whole(value: object, low: int = 0, high: int = 2**63) -> int:
    if _signed(value) < low or _signed(value) >= high:
        raise ValueError(f"{value!r}: {low} … {high - 1}")
    return _signed(value)


def _signed(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r} is no whole number of 64 bits")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
