"""A small store that retention works on, and a disk that a test fills."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Retention, Store
from rocketstore.services.retention import keeper
from rocketstore.services.retention.plan import DiskUse
from tests.support.small_store import SEGMENT, dispatched, engine_of
from tests.support.waiting import pause

SOON = datetime.timedelta(milliseconds=20)
NEVER = datetime.timedelta(days=1)
#: All that is sealed.
ALL = Retention(max_bytes=1)


def fill(store: Store, count: int = 60, topic: str = "orders") -> Store:
    writer = store.writer(topic)
    for n in range(count):
        writer.put(b"%02d" % n * 150)
    store.flush()
    return dispatched(store)


def used(store: Store) -> tuple[Any, ...]:
    """The files of the log; the directory may have the next one, too."""
    files: tuple[Any, ...] = engine_of(store).reader.source.segments()
    return files


def comes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 120
    while not condition() and time.monotonic() < deadline:
        pause(0.005)
    return condition()


class Disk:
    """A file system whose use a test sets; what retention removes makes room."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: Store, segments_in_all: int) -> None:
        self.store, self.total = store, segments_in_all * SEGMENT
        self.others = 0
        monkeypatch.setattr(keeper, "disk_use", self.use)

    def use(self, directory: Path, held: int = 0) -> DiskUse:
        files = engine_of(self.store).reader.source.segments()
        return DiskUse(self.total, self.others + len(files) * SEGMENT, held)
