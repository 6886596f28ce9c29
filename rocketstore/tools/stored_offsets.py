"""What consumer groups have committed, from the file that says so; no store has to be open."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rocketstore.log.consumer_offsets import ConsumerOffsets
from rocketstore.log.layout import StoreLayout

__all__ = ["stored_offsets"]


def stored_offsets(path: Path, topics: Iterable[str]) -> dict[tuple[str, str], dict[int, int]]:
    """Next queue offsets by queue id, of each (group, topic) that has any; sorted. Empty without the file,
    or with one that cannot be understood."""
    offsets = ConsumerOffsets(StoreLayout(path), read_only=True)
    offsets.load()
    found = {
        (group, topic): offsets.get(topic, group)
        for topic in topics
        for group in offsets.groups(topic)
    }
    return {pair: queues for pair, queues in sorted(found.items()) if queues}
