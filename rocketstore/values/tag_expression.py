"""Tags that are wanted, as texts or as RocketMQ's expression."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rocketstore.values.arguments import texts

__all__ = ["tag_set"]

TAGS: Final = "None, a tag, 'a || b' or several tags"


def tag_set(tags: str | Iterable[str] | None) -> frozenset[str] | None:
    """The tags wanted; None for all. A text may be RocketMQ's expression, `paid || refunded`, and
    `*` is all.

    Raises:
        ValueError, TypeError: what means nothing.
    """
    if tags is None:
        return None
    words = tags.split("||") if isinstance(tags, str) else texts("tags", tags, TAGS)
    wanted = frozenset(word.strip() for word in words)
    if "" in wanted or not wanted:
        raise ValueError(f"tags = {tags!r}: expected {TAGS}")
    return None if "*" in wanted else wanted
