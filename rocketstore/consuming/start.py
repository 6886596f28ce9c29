"""Where a consumer begins and which tags it wants: what users say, and what it means."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from rocketstore.values.arguments import texts, whole_number
from rocketstore.values.timestamps import Timestamp, timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketstore.consuming.cursors import Edge

__all__ = ["EDGES", "place_of", "tag_set"]

EDGES: Final = ("earliest", "latest")
TAGS: Final = "None, a tag, 'a || b' or several tags"


def place_of(
    offset: Edge | int, when: Timestamp | None, queue_id: int | None
) -> tuple[Edge | int, int | None]:
    """A wish as (end or offset, time in ms): the time counts unless it is None."""
    if when is not None:
        if offset != "earliest":
            raise ValueError(f"offset = {offset!r}: not together with when")
        return "earliest", timestamp_ms("when", when)
    if isinstance(offset, str):
        if offset not in EDGES:
            raise ValueError(f"offset = {offset!r}: a number, 'earliest' or 'latest'")
        return offset, None
    given: object = offset
    if isinstance(given, datetime.datetime):
        raise TypeError(f"offset = {offset!r}: a time is given by when=")
    offset = whole_number("offset", offset, 0)
    if queue_id is None:
        raise ValueError(f"offset = {offset}: a number needs the queue_id that it belongs to")
    return offset, None


def tag_set(tags: str | Iterable[str] | None) -> frozenset[str] | None:
    """The tags wanted; None for all. A text may be RocketMQ's expression, `paid || refunded`."""
    if tags is None:
        return None
    words = tags.split("||") if isinstance(tags, str) else texts("tags", tags, TAGS)
    wanted = frozenset(word.strip() for word in words)
    if "" in wanted or not wanted:
        raise ValueError(f"tags = {tags!r}: expected {TAGS}")
    return None if "*" in wanted else wanted
