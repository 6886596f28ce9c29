"""Stores with tiny files for tests, and system calls that fail when they are told to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import rocketstore
from rocketstore import Message, Store
from rocketstore._native.os import syscalls

if TYPE_CHECKING:
    import pytest

    from rocketstore.engine.parts import WriteParts
    from rocketstore.engine.writing_engine import WritingEngine

DAY_MS = 86_400_000
SEGMENT = 4096
BLANK_MAGIC = bytes.fromhex("cbd43194")
#: A dozen messages roll a segment, ten a queue file, 63 an index file.
SMALL: dict[str, Any] = {
    "commit_log_file_size_bytes": SEGMENT,
    "consume_queue_file_size_bytes": 200,
    "index_slots": 16,
    "index_entries": 64,
}
#: Nothing moves by itself: only what a test asks for is committed or flushed.
STILL: dict[str, Any] = {
    "flush_interval_ms": DAY_MS,
    "flush_thorough_interval_ms": DAY_MS,
    "commit_interval_ms": DAY_MS,
    "commit_thorough_interval_ms": DAY_MS,
    "wake_commit_on_put": False,
}


def open_small(path: Path, mode: Any = "rw", **options: Any) -> Store:
    return rocketstore.open(path, mode, **{**SMALL, **options})


def open_still(path: Path, durability: str, **options: Any) -> Store:
    """A store of which a test moves every position itself."""
    return open_small(path, durability=durability, **{**STILL, **options})


def engine_of(store: Store) -> WritingEngine:
    """The engine of a store: the only door of tests to what no user sees."""
    return cast("WritingEngine", store._engine)


def parts(store: Store) -> WriteParts:
    """What only a store that is open for writing has."""
    return engine_of(store).write


def until(store: Store, condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Waits on the log's progress until `condition` holds."""
    progress = parts(store).commit_log.log.progress
    deadline = time.monotonic() + timeout_s
    while True:
        seen = progress.count
        if condition():
            return
        assert time.monotonic() < deadline, f"never came true: {store!r}"
        progress.wait(seen, 20)


def store_group_offset(store: Store, topic: str, offset: int) -> None:
    """Group "group", queue 0: wherever it is, as in the file of a store that lost what stood there."""
    engine_of(store).offsets.commit(topic, "group", {0: offset}, 0, lambda physical_end: None)


@contextmanager
def no_dispatch(store: Store) -> Iterator[None]:
    """Nothing becomes readable in its queue meanwhile; afterwards all does."""
    dispatcher: Any = engine_of(dispatched(store))._dispatcher
    source: Any = engine_of(store).reader.source
    dispatch_up_to = source._dispatch_up_to
    dispatcher.service.paused = True
    dispatcher.catch_up = lambda target, **options: 0
    source._dispatch_up_to = lambda target: 0
    dispatcher.wake()
    try:
        yield
    finally:
        source._dispatch_up_to = dispatch_up_to
        del dispatcher.catch_up
        dispatcher.service.paused = False
        dispatcher.wake()


def dispatched(store: Store) -> Store:
    """The store, once readers see in their queues all that is visible."""
    until(store, lambda: store.dispatched_offset >= store.visible_offset)
    return store


def everything(store: Store, topic: str = "orders") -> list[Message]:
    """All messages of a topic, queue by queue."""
    found = []
    for queue_id in store.queues(topic):
        with store.consumer(topic, queue_id=queue_id) as consumer:
            found += list(consumer)
    return found


def log_bytes(root: Path) -> bytes:
    """The whole log as another process reads it: by read(2), never through a mapping."""
    return b"".join(path.read_bytes() for path in segments(root))


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


class Calls:
    """Stands in for `syscalls` in one module: notes every call, fails or holds those it is told to."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.made: list[str] = []
        self.errors: dict[str, BaseException] = {}
        self.before: dict[str, Callable[[], object]] = {}

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if not callable(real):
            return real

        def call(*arguments: Any) -> Any:
            self.made.append(name)
            if name in self.before:
                self.before[name]()
            if name in self.errors:
                raise self.errors[name]
            return real(*arguments)

        return call


def watched(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> Calls:
    """The system calls of these modules, in order."""
    calls = Calls(syscalls)
    for module in modules:
        monkeypatch.setattr(module, "syscalls", calls)
    return calls


def put_many(writer: Any, count: int, size: int) -> None:
    for _ in range(count):
        writer.put(b"x" * size)
