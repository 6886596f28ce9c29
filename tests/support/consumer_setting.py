"""What consumers need, over a store that was written byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketstore.consumer import Consumer
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.log.follow.follower import Follower
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.reader import Reader
from tests.support.made_store import MadeStore


class Setting:
    """A store on disk, a reader of it, and a table of offsets that may be written."""

    def __init__(self, root: Path) -> None:
        self.made = MadeStore(root)
        self.layout = StoreLayout(root)
        make_directories(self.layout)
        self.source = Follower(self.layout, verify=3)
        self.reader = Reader(self.source)
        self.offsets = ConsumerOffsets(self.layout)
        self.offsets.load()
        self.flushes: list[int] = []

    def consumer(self, topic: str = "orders", **options: Any) -> Consumer:
        if "group" in options:
            options.setdefault("offsets", self.offsets)
        return Consumer(self.reader, topic, wait_flushed=self.flushes.append, **options)

    def stored(self, group: str = "billing") -> dict[int, int]:
        again = ConsumerOffsets(self.layout)
        again.load()
        return again.get("orders", group)


def offsets_of(messages: Any) -> list[int]:
    return [message.queue_offset for message in messages]
