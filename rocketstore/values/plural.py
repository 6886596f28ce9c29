"""Words of messages to users."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str, nouns: str = "") -> str:
    """`1 record`, `2 records`; `nouns` where an s does not make it."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"
