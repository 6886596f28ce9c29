"""Stores with every kind of message, and their messages as rows, for the tests of columns."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import Columns, Message
from rocketstore.columns import ALL

TOPICS = ("orders", "other", "t" * 127, "%RETRY%" + "w" * 200)
TAGS = (None, "paid", "late", "größe", "x" * 700)


def fill_at_random(path: Path, rng: random.Random, count: int, **options: Any) -> None:
    """Messages of several topics, queues, sizes, hosts and properties over several segments."""
    config = {
        "commit_log_file_size_bytes": 64 << 10,
        "auto_wide_topic": True,
        "durability": "os",
        **options,
    }
    with rocketstore.open(path, **config) as store:
        while count:
            topic, queue_id = rng.choice(TOPICS), rng.randrange(4)
            body = rng.randbytes(rng.choice((0, 1, 11, 12, 13, 100, 900, 5000)))
            if count > 3 and rng.random() < 0.2:
                store.writer(topic, queue_id=queue_id).put_batch([body[:50]] * 3)
                count -= 3
                continue
            properties = {f"p{n}": "ö" * rng.randrange(1, 9) for n in range(rng.randrange(4))}
            tags, keys = rng.choice(TAGS), rng.randrange(3)
            if tags:
                properties["TAGS"] = tags
            if keys:
                properties["KEYS"] = " ".join(f"k{n}" for n in range(keys))
            store.put_message(
                topic,
                body,
                queue_id=queue_id,
                properties=properties,
                flag=rng.randrange(-5, 5),
                sys_flag=rng.choice((0, 1, 4, 8, 12)),
                born_time=rng.randrange(2_000_000_000_000),
                born_host=rng.choice(("10.0.0.1:99", "[2001:db8::1]:10911", "0.0.0.0:0")),
                store_host=rng.choice((None, "[::1]:65535")),
                reconsume_times=rng.randrange(5),
                prepared_transaction_offset=0,
            )
            count -= 1


def row_of(message: Message) -> dict[str, Any]:
    """What a scan of all columns should say of a message."""
    row = {name: getattr(message, name) for name in ALL}
    return row | {"keys": message.properties.get("KEYS")}


def messages_of(path: Path) -> list[dict[str, Any]]:
    """All messages in physical order, one by one."""
    with rocketstore.open(path, "r") as store:
        found, offset = [], store.begin_offset
        while offset < store.visible_offset:
            try:
                message = store.get(offset)
            except rocketstore.MessageNotFoundError:
                size = store.config.commit_log_file_size_bytes
                offset = (offset // size + 1) * size
                continue
            found.append(row_of(message))
            offset += message.size
        return found


def rows_of(chunks: Iterable[Columns]) -> list[dict[str, Any]]:
    """The rows of all chunks, one dict each."""
    rows = []
    for columns in chunks:
        lists = {name: column.tolist() for name, column in columns.items()}
        assert {len(values) for values in lists.values()} <= {columns.rows}
        rows += [
            dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)
        ]
    return rows
