"""Small stores with keys, and what a compaction keeps of their messages."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import Store
from tests.support.small_store import SMALL, dispatched, open_small

NONE = timedelta(0)
SHAPE = {"index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]}


def put(store: Store, body: bytes, keys: str | None = None, **more: Any) -> rocketstore.PutResult:
    properties = {} if keys is None else {"KEYS": keys}
    topic = more.pop("topic", "users")
    return store.put_message(topic, body, properties=properties, **more)


def messages(path: Path, topic: str = "users") -> list[rocketstore.Message]:
    """In the order of the log."""
    with open_small(path, "r") as store:
        if topic not in store.topics(system=True):
            return []
        return sorted(store.consumer(topic), key=lambda message: message.physical_offset)


def rows(path: Path, topic: str = "users") -> list[tuple[Any, ...]]:
    """What a compaction keeps of a message."""
    return [
        (
            *(one.queue_id, one.queue_offset, one.body, one.properties, one.flag, one.sys_flag),
            *(one.born_timestamp_ms, one.store_timestamp_ms, one.born_host, one.reconsume_times),
        )
        for one in messages(path, topic)
    ]


def fill_at_random(path: Path, seed: int) -> None:
    rand = random.Random(seed)
    with open_small(path, durability="memory") as store:
        for n in range(500):
            key = rand.choice([None, " ", *(f"k{i}" for i in range(rand.choice([5, 200])))])
            body = b"" if rand.random() < 0.2 else b"%d" % n
            topic = rand.choice(["users", "users", "other"])
            put(store, body, key, queue_id=rand.randrange(3), topic=topic, flag=n)
        dispatched(store)
