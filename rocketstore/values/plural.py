"""Words of messages to users."""

from __future__ import annotations

import reprlib

__all__ = ["bounded", "counted"]

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxdict = 8


def counted(number: int, noun: str, nouns: str = "") -> str:
    """`1 record`, `2 records`; `nouns` where an s does not make it."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def bounded(values: list[int] | dict[int, int]) -> str:
    """`[0, 1, 2]`, of which eight are shown: a topic may have 65,536 queues."""
    return _SHORT.repr(values)
