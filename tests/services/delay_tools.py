"""What tests of delayed messages share: a store whose clock stands, and looks at it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rocketstore import Message, Store
from rocketstore.services.delay import progress
from rocketstore.services.delay.service import DelayService
from tests.support.copies import copy_if_there
from tests.support.small_store import engine_of, parts
from tests.support.waiting import wait_until

__all__ = [
    "NOW_MS",
    "TOPIC",
    "bodies",
    "crash",
    "due_of",
    "file_of",
    "idle",
    "own_part",
    "read",
    "refuse",
]

NOW_MS = 1_800_000_000_000
TOPIC = "SCHEDULE_TOPIC_XXXX"


def read(store: Store, topic: str = "orders") -> list[Message]:
    return list(store.consumer(topic))


def bodies(store: Store, topic: str = "orders") -> list[bytes]:
    return [message.body for message in read(store, topic)]


def idle(store: Store) -> None:
    """Waits until nothing is due any more."""
    clock = parts(store).clock
    wait_until(
        lambda: all(
            waiting.due_time.timestamp() * 1000 > clock.now_ms() for waiting in store.delayed
        )
    )


def due_of(store: Store, level: int) -> int | None:
    found = engine_of(store).guests.made(DelayService).delivery.levels.get(level - 1)
    return found and found.due_ms


def file_of(path: Path) -> Path:
    return path / "config" / "delayOffset.json"


def own_part(path: Path) -> Any:
    return progress.read_json(file_of(path))


def crash(path: Path, to: Path) -> Path:
    """What a killed process leaves. The store goes on: files come and go meanwhile."""
    lock = shutil.ignore_patterns("lock")
    return Path(shutil.copytree(path, to, ignore=lock, copy_function=copy_if_there))


def refuse(*_: object) -> None:
    raise OSError(28, "no room for the offsets")
