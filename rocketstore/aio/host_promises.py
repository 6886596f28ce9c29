"""Promises of puts that another process has taken: it is asked on a thread, for all that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

import rocketstore
from rocketstore import DurabilityTimeoutError, PutResult
from rocketstore.aio.awaited import PutFuture
from rocketstore.values import without_frames

__all__ = ["HostPromises"]


class _Wait(NamedTuple):
    """`met` completes `future` once all below the offset is on the disk."""

    end_offset: int
    future: asyncio.Future[Any]
    met: Callable[[], object]
    result: PutResult | None


class HostPromises:
    """Those of one loop, for a store that is held elsewhere."""

    def __init__(self, store: rocketstore.Store, threads: Executor) -> None:
        self._store = store
        self._threads = threads
        self._waits: list[_Wait] = []
        self._asking: asyncio.Task[None] | None = None
        #: What waits, a count.
        self.pending = 0

    def flushed(self, end_offset: int) -> PutFuture[None]:
        """What is done once everything below the offset is on the disk."""
        future: PutFuture[None] = PutFuture(loop=asyncio.get_running_loop())
        self.add(end_offset, future, lambda: future.set_result(None))
        return future

    def add(
        self,
        end_offset: int,
        future: asyncio.Future[Any],
        met: Callable[[], object],
        result: PutResult | None = None,
    ) -> None:
        """Has `future` fail, or `met` called, once it is known which. `result` goes into the error of a wait
        that takes too long."""
        self.pending += 1
        self._waits.append(_Wait(end_offset, future, met, result))
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def room(self, most: int) -> None:
        """Returns once fewer than `most` wait."""
        while self.pending >= most and self._asking is not None:
            await asyncio.wait([self._asking])

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waits:
                waits, self._waits = self._waits, []
                ends = [wait.end_offset for wait in waits]
                errors = await loop.run_in_executor(self._threads, self._errors, ends)
                self.pending -= len(waits)
                for wait, error in zip(waits, errors, strict=True):
                    _settle(wait, error)
        finally:
            self._asking = None

    def _errors(self, ends: list[int]) -> list[Exception | None]:
        """One wait for the last; then each knows."""
        last = self._error(max(ends), None)
        return [last if end == max(ends) else self._error(end, 0) for end in ends]

    def _error(self, end_offset: int, timeout_s: float | None) -> Exception | None:
        try:
            self._store.wait_flushed(end_offset, timeout_s)
        except Exception as error:  # of whatever kind: a put waits for it
            return error
        return None


def _settle(wait: _Wait, error: Exception | None) -> None:
    if wait.future.done():
        return
    if error is None:
        wait.met()
        return
    if isinstance(error, DurabilityTimeoutError):
        error = DurabilityTimeoutError(str(error), wait.result)
    wait.future.set_exception(without_frames(error))
