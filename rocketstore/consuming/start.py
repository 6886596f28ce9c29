"""Where a consumer begins and which tags it wants: what users say, and what it means."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from rocketstore.values.arguments import texts, whole_number
from rocketstore.values.timestamps import timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketstore.consuming.cursors import Edge

__all__ = ["EDGES", "place_of", "tag_set"]

EDGES: Final = ("earliest", "latest")
TAGS: Final = "None, a tag, 'a || b' or several tags"


def place_of(
    name: str, to: Edge | int | datetime.datetime, queue_id: int | None
) -> tuple[Edge | int, int | None]:
    """A wish as (end or offset, time in ms): one of the two counts."""
    if isinstance(to, str):
        if to not in EDGES:
            raise ValueError(f"{name} = {to!r}: a number, a datetime, 'earliest' or 'latest'")
        return to, None
    if isinstance(to, datetime.datetime):
        return "earliest", timestamp_ms(name, to)
    to = whole_number(name, to, 0)
    if queue_id is None:
        raise ValueError(f"{name} = {to}: a number needs the queue_id that it belongs to")
    return to, None


def tag_set(tags: str | Iterable[str] | None) -> frozenset[str] | None:
    """The tags wanted; None for all. A text may be RocketMQ's expression, `paid || refunded`."""
    if tags is None:
        return None
    words = tags.split("||") if isinstance(tags, str) else texts("tags", tags, TAGS)
    wanted = frozenset(word.strip() for word in words)
    if "" in wanted or not wanted:
        raise ValueError(f"tags = {tags!r}: expected {TAGS}")
    return None if "*" in wanted else wanted
