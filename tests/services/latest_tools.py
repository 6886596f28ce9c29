"""Small stores of a topic of which the latest message of each key is kept."""

from __future__ import annotations

from typing import Any

from rocketstore import Message, Retention, Store
from tests.support.small_store import dispatched

__all__ = ["RULE", "first_segments_go", "latest_of", "messages", "put"]

#: All that is sealed, but for what is put again.
RULE = Retention(max_bytes=1, keep_latest_of=["config"])


def put(store: Store, key: str | None, body: bytes, queue_id: int = 0, **more: Any) -> None:
    properties = {"p": "q"} if key is None else {"KEYS": key, "p": "q"}
    store.put_message("config", body, queue_id=queue_id, properties=properties, **more)


def messages(store: Store) -> list[Message]:
    """Of the topic, in the order of the log."""
    found = (
        list(store.consumer("config", offset="earliest"))
        if "config" in store.topics(system=True)
        else []
    )
    return sorted(found, key=lambda message: message.physical_offset)


def latest_of(store: Store) -> dict[str, bytes]:
    return {message.keys[0]: message.body for message in messages(store) if message.keys}


def first_segments_go(store: Store) -> None:
    dispatched(store)
    store.flush()
    store.retention.run(RULE)
    dispatched(store)
