"""The ways in: `rocketstore.aio.open`, and `attach` for a store that is open already."""

from __future__ import annotations

import asyncio
import datetime
import functools
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Unpack

import rocketstore
from rocketstore.aio.awaited import AlsoCoroutine
from rocketstore.aio.loop_port import IN_FLIGHT_BYTES, IN_FLIGHT_MESSAGES, THREADS
from rocketstore.aio.store import Store
from rocketstore.values import Pool

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from rocketstore.config import OpenOptions
    from rocketstore.replication import Master, Replica
    from rocketstore.values import (
        Durability,
        Duration,
        Listener,
        ManualClock,
        Progress,
        SegmentFiles,
    )

__all__ = ["Opening", "attach", "open_store"]

#: A part of a wait for the lock of another process, seconds, and the longest that is not cut into
#: parts: each open waits a second.
PART_S: Final = 1.0
LAST_PART_S: Final = 2.0
SHORTEST_S: Final = 0.001


class Opening(AlsoCoroutine[Store]):
    """A store that is about to be opened: `async with` it, or await it and close the store
    yourself."""

    def __init__(self, opened: _Waiting, limits: dict[str, int]) -> None:
        """Made by `open`."""
        self._opened = opened
        self._limits = limits
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise self._not_open(name)

    def close(self) -> None:
        """Of a coroutine: ends the wait of a task that opens the store.

        Raises AttributeError where no task does: it is not the `close` of a store.
        """
        if getattr(self, "_waiting", None) is None:
            raise self._not_open("close")
        super().close()

    def _not_open(self, name: str) -> AttributeError:
        return AttributeError(
            f"the store is not open yet and has no {name!r}: say "
            "`async with rocketstore.aio.open(…) as store`, or await what `open` returns",
            name=name,
            obj=self,
        )

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._store is not None:
            await self._store.close()

    async def _open(self) -> Store:
        threads = _threads()
        opening = threads.submit(self._opened)
        try:
            store = await asyncio.wrap_future(opening)
            return Store(store, threads, owns=True, **self._limits)
        except BaseException:
            # A cancelled open goes on in its thread: nobody must find the store locked afterwards.
            self._opened.unwanted = True
            opening.add_done_callback(_close_unwanted)
            threads.shutdown(wait=False)
            raise


def open_store(
    path: str | os.PathLike[str],
    mode: Literal["rw", "r+", "r"] = "rw",
    *,
    durability: Durability | None = None,
    config: rocketstore.StoreConfig | None = None,
    force: bool = False,
    on_arrival: Listener | None = None,
    on_recovery: Progress | None = None,
    untrusted: bool = False,
    check_queues: bool = False,
    clock: ManualClock | None = None,
    wait_s: Duration = 0.0,
    retention: rocketstore.Retention | None = None,
    replication: Master | Replica | None = None,
    segment_files: SegmentFiles | None = None,
    shared: bool | Literal["guest", "host"] = False,
    max_in_flight: int = IN_FLIGHT_MESSAGES,
    max_in_flight_bytes: int = IN_FLIGHT_BYTES,
    **options: Unpack[OpenOptions],
) -> Opening:
    """Opens a store for the running loop: `async with rocketstore.aio.open(path) as store`.

    Args:
        path … shared, options: as in `rocketstore.open`, which runs on a thread. A cancelled open
            stops waiting for the lock within two seconds, for a host within five.
        max_in_flight: puts of this loop that may wait for the disk at once, 1 or more. Beyond that
            a put waits before it is put.
        max_in_flight_bytes: bytes of their records likewise, 1 or more; one record fits always.

    Raises, when awaited: what `rocketstore.open` raises; ConfigError for a limit below 1, at once.
    """
    limits = _limits(max_in_flight, max_in_flight_bytes)
    opened = functools.partial(
        rocketstore.open,
        path,
        mode,
        durability=durability,
        config=config,
        force=force,
        on_arrival=on_arrival,
        on_recovery=on_recovery,
        untrusted=untrusted,
        check_queues=check_queues,
        clock=clock,
        retention=retention,
        replication=replication,
        segment_files=segment_files,
        shared=shared,
        **options,
    )
    if isinstance(wait_s, datetime.timedelta):
        wait_s = wait_s.total_seconds()
    return Opening(_Waiting(opened, mode, wait_s), limits)


def attach(
    store: rocketstore.Store,
    *,
    max_in_flight: int = IN_FLIGHT_MESSAGES,
    max_in_flight_bytes: int = IN_FLIGHT_BYTES,
) -> Store:
    """The running loop's own handle of a store that is open: for several loops in several threads,
    or for tasks and threads of one program. Its `close` waits for this loop's puts and leaves
    `store` open."""
    limits = _limits(max_in_flight, max_in_flight_bytes)
    return Store(store, _threads(), owns=False, **limits)


def _threads() -> ThreadPoolExecutor:
    return Pool(THREADS, "rocketstore-aio")


def _limits(max_in_flight: int, max_in_flight_bytes: int) -> dict[str, int]:
    limits = {"max_in_flight": max_in_flight, "max_in_flight_bytes": max_in_flight_bytes}
    for name, value in limits.items():
        if type(value) is not int or value < 1:
            raise rocketstore.ConfigError(name, value, "1 or more")
    return limits


class _Waiting:
    """An open that waits for the lock a while at a time: one that is cancelled must not hold its
    thread, and the end of the process, until `wait_s` is over."""

    def __init__(self, opened: Callable[..., rocketstore.Store], mode: str, wait_s: float) -> None:
        self._opened = opened
        self._wait_s = wait_s
        #: rocketstore.open says what is wrong, with the value that was given.
        self._at_once = mode == "r" or type(wait_s) not in (int, float) or not wait_s > LAST_PART_S
        self.unwanted = False

    def __call__(self) -> rocketstore.Store:
        if self._at_once:
            return self._opened(wait_s=self._wait_s)
        began = time.monotonic()
        while True:
            left_s = self._wait_s - (time.monotonic() - began)
            try:
                part_s = max(left_s, SHORTEST_S) if left_s < LAST_PART_S else PART_S
                return self._opened(wait_s=part_s)
            except rocketstore.StoreLockedError as error:
                if not error.waited_s:  # by this process: waiting does not help
                    raise
                waited_s = time.monotonic() - began
                if self.unwanted or waited_s >= self._wait_s:
                    raise rocketstore.StoreLockedError(
                        error.path, error.holder, error.remedy, waited_s
                    ) from None


def _close_unwanted(opening: Future[rocketstore.Store]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
