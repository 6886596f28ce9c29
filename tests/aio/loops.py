"""What the tests of `rocketstore.aio` share: a loop with a time limit, small stores, a disk that waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import rocketstore.aio
from rocketstore.aio import Opening
from tests.support.small_store import SMALL

T = TypeVar("T")

LIMIT_S = 60.0

#: What makes the loops; tests run with that of asyncio and with that of uvloop.
make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs `main` in a loop of its own; a hang is a TimeoutError."""

    async def limited() -> T:
        return await asyncio.wait_for(main(), LIMIT_S)

    with asyncio.Runner(loop_factory=make_loop) as runner:
        return runner.run(limited())


def open_small(path: Path, mode: Any = "rw", **options: Any) -> Opening:
    return rocketstore.aio.open(path, mode, **{**SMALL, **options})


async def turns(count: int = 5) -> None:
    """Lets whatever is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def happens(condition: Callable[[], bool]) -> None:
    """Waits, turn by turn, until `condition` holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


class Slow(list[bytes]):
    """Bodies that are not there yet: whoever puts them stands still."""

    def __init__(self, *bodies: bytes) -> None:
        super().__init__(bodies)
        self.reached = threading.Event()
        self.there = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        self.reached.set()
        assert self.there.wait(20)
        return super().__iter__()


class Disk:
    """Holds the flusher's calls back until `work` is set; `syncs` counts those that were let through."""

    def __init__(self, calls: Any) -> None:
        self.calls = calls
        self.work = threading.Event()
        self.reached = threading.Event()
        calls.hold(self._hold)

    def _hold(self) -> None:
        self.reached.set()
        assert self.work.wait(20)

    @property
    def syncs(self) -> int:
        return sum(name in ("pwritev2", "fdatasync") for name in self.calls.made)
