"""The one reader of JSON that others may have written: state files, tables of peers, bookmarks.

`json.loads` takes what fits into memory: any depth, any digits, a hundred bytes of memory for three of text.
So a text is weighed before it is parsed, and `LIMITS` says what each may weigh. What one weighs follows
from its bytes alone: a parsed text takes some 200 bytes for each entry at most, besides its own.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Final

__all__ = ["LIMITS", "Limits", "TooLargeError", "parse_json", "weigh"]

#: Entries that an object or a list counts for, besides the one that it is in.
BRACKET: Final = 1
#: Bytes that a character may take which is not ASCII, or is written as an escape.
WIDE: Final = 4
#: Digits in a row; Python takes square time for them.
DIGITS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """`size`: bytes, a quarter of them for a text that is not all ASCII. `entries`: values, of which an
    object or a list counts for two. `depth`: of brackets."""

    size: int
    entries: int
    depth: int = 8


#: What each text may weigh, by the name of its file, or by what it is.
LIMITS: Final[dict[str, Limits]] = {
    # Of RocketMQ, and the answers of a broker that become these files. 100,000 offsets of as many groups fit.
    "consumerOffset.json": Limits(16 << 20, 210_000),
    "delayOffset.json": Limits(4 << 20, 50_000),
    "topics.json": Limits(16 << 20, 300_000, 16),
    "subscriptionGroup.json": Limits(16 << 20, 300_000, 16),
    "side file": Limits(16 << 20, 300_000, 64),  # any other of a broker's
    "answer": Limits(1 << 20, 10_000),  # a header, or what a broker says of itself
    # Ours: as much as their writers keep.
    "store.json": Limits(1 << 20, 10_000),
    "compacted.json": Limits(1 << 20, 10_000),
    "cut.json": Limits(4096, 100),
    "holds.json": Limits(16 << 20, 5_000),
    "retention.json": Limits(4 << 20, 50_000),
    "recovery.json": Limits(16 << 20, 300_000, 5),
    "shipped.json": Limits(16 << 20, 200_000),
    "replication.json": Limits(1 << 20, 100_000),
    "blocked_queues": Limits(16 << 20, 200_000),
    "timers": Limits(16 << 20, 300_000),
    "group_offsets": Limits(1 << 20, 100_000),
    "quarantine": Limits(16 << 20, 100_000),  # a manifest of what a recovery cut off
    "lease": Limits(4096, 100),
    "call": Limits(1 << 20, 100_000, 16),  # of a guest to its host, and what it is answered
    "bookmark": Limits(64 << 10, 100),
    # As long as a message may be, and as an archive is.
    "transaction": Limits(1 << 31, 1 << 31),
    "archive": Limits(1 << 30, 1 << 30),
    "spark": Limits(256 << 20, 1 << 30),  # state of a sink or a stream, and options
}

_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'  # perhaps without its end
_TEXT = re.compile(_STRING, re.DOTALL)
# A key that is a bare integer, as RocketMQ writes it.
_BARE_KEY = re.compile(rb"[{,]\s*-?[0-9]+\s*:")
_TOKEN = re.compile(_STRING + rb"|(?P<key>(?<=[{,\s])-?[0-9]+(?=\s*:))", re.DOTALL)
_NUMBER = re.compile(rb"[0-9]{%d}" % (DIGITS_MAX + 1))
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class TooLargeError(ValueError):
    """A text is beyond its limits; it may be a good one."""


def weigh(text: str | bytes, limits: Limits) -> bytes:
    """The bytes of a text that is within its limits of size and entries; TooLargeError for another."""
    data = text.encode() if isinstance(text, str) else text
    narrow = data.isascii() and b"\\u" not in data
    size = limits.size if narrow else max(4096, limits.size // WIDE)
    if len(data) > size:
        raise TooLargeError(f"more than {size:,} bytes")
    brackets = data.count(b"[") + data.count(b"{")
    entries = data.count(b",") + BRACKET * brackets
    if max(entries, data.count(b'"') // 4) > limits.entries:
        raise TooLargeError(
            f"more than {limits.entries:,} entries, of which each object and each list counts for "
            f"{BRACKET + 1}"
        )
    return data


def parse_json(text: str | bytes, limits: Limits) -> object:
    """A document in one of the forms that RocketMQ writes (format.md 1.4): integer keys need no
    quotes. ValueError: it is none. TooLargeError: it is beyond its limits."""
    data = weigh(text, limits)
    rest = _TEXT.sub(b"", data)
    if _NUMBER.search(rest):
        raise ValueError(f"a number of more than {DIGITS_MAX} digits")
    brackets = rest.translate(_SQUARE, _NO_BRACKETS)
    for _ in range(limits.depth):
        brackets = brackets.replace(b"[]", b"")
    if brackets:
        raise ValueError(f"brackets without an end, or nested deeper than {limits.depth}")
    if _BARE_KEY.search(rest):
        data = _TOKEN.sub(lambda found: b'"%b"' % found[0] if found["key"] else found[0], data)
    document: object = json.loads(
        data.decode(), parse_float=_finite, parse_constant=_refuse_constant
    )
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond all numbers")
    return number


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
