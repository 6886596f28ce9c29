"""The thread of replication with its event loop, and tasks in it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from rocketstore._native.os import syscalls
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.engine.shutdown import StillRunsError
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.threads import runs_here, start_thread

__all__ = ["LoopThread", "end_tasks", "in_thread"]

logger = logging.getLogger(__name__)
_Given = TypeVar("_Given")

#: Longest wait for the thread at the end of a store, seconds.
STOP_S: Final = 10.0


class LoopThread:
    """Runs one coroutine in an event loop of its own until `stop`, which cancels it."""

    def __init__(self, name: str, main: Callable[[], Coroutine[None, None, None]]) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._main = main
        self._lock = SignalSafeLock("the loop of replication")
        self._token = syscalls.process_token()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False
        #: Moves once the thread has done its work. An interrupt of `join`, which up to Python 3.12
        #: takes the thread for ended, does not matter here.
        self._done = EventCount()

    def start(self) -> None:
        """Once; OSError where the system has no thread left."""
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        start_thread(thread)
        self._thread = thread

    @property
    def alive(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def call(self, act: Callable[[], object]) -> None:
        """Has `act` called in the loop, soon; not at all once it ends. Any thread may."""
        with self._lock():
            if self._loop is not None and not syscalls.forked_since(self._token):
                self._loop.call_soon_threadsafe(act)

    def wait(self) -> None:
        """Returns once the work is done. What a signal raises ends the wait of the main thread."""
        if self._thread is not None:
            self._done.wait(0)

    def stop(self) -> None:
        """Returns once the thread has ended. Idempotent; any thread may. Raises StillRunsError: it
        has not, after some seconds."""
        self._stopping = True
        if not self.alive:
            return
        self.call(self._cancel)
        thread = self._thread
        if thread is None or runs_here(thread):
            return
        if not self._done.wait(0, int(STOP_S * 1000)):
            late = f"{self.name} has not ended in {STOP_S:g} s"
            raise StillRunsError(f"{late}: its store stays locked until this process ends")
        thread.join()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._begin())
        except BaseException as error:
            self.error = without_frames(error)
            logger.error("%s failed: %r", self.name, error)
        finally:
            with self._lock():
                self._loop = None
            self._done.notify()

    async def _begin(self) -> None:
        self._task = asyncio.current_task()
        with self._lock():
            self._loop = asyncio.get_running_loop()
        if not self._stopping:  # a stop that came before found no loop
            try:
                await self._main()
            finally:
                with self._lock():
                    self._loop = None


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancels them, and returns once they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def in_thread(act: Callable[..., _Given], *arguments: Any) -> _Given:
    """What `act` gives, which may take long: a thread of the loop's executor calls it, or this one
    once the interpreter ends, which starts no more of them."""
    try:
        given = asyncio.get_running_loop().run_in_executor(None, act, *arguments)
    except RuntimeError:
        return act(*arguments)
    return await given
