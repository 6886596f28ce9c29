"""Native threads, whose start has a bound; a process that has green ones is refused."""

from __future__ import annotations

import _queue
import errno
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rocketstore.errors import ConfigError
from rocketstore.values.limits import used_up

__all__ = ["POOL_THREADS_MAX", "Pool", "check_threads", "runs_here", "start_thread"]

#: Longest wait for the first line of a new thread, seconds. One that finds no memory dies before
#: it, in silence.
START_S: Final = 5.0
#: Most threads of a pool. More would finish no sooner, and the system limits a user's threads.
POOL_THREADS_MAX: Final = 64
#: What starts the threads of `threading`, by version of Python.
STARTERS: Final = ("_start_new_thread", "_start_joinable_thread")
GREEN: Final = (
    "gevent or eventlet has made the threads of this process green, and a store that is written "
    "needs native ones: patch without them, and before the store is opened, "
    "gevent.monkey.patch_all(thread=False) or eventlet.monkey_patch(thread=False)"
)


class _Started(threading.Event):
    """What `Thread.start` waits for, with a bound."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(START_S if timeout is None else timeout)


def check_threads() -> None:
    """Called before a store starts threads, which wait natively.

    Raises:
        ConfigError: gevent or eventlet has replaced the threads of this process by greenlets. One
            that waits natively would stop them all, for ever.
    """
    if _are_green():
        raise ConfigError("mode", "rw", GREEN)


def _are_green() -> bool:
    return any(
        not isinstance(getattr(threading, name, len), types.BuiltinFunctionType)
        for name in STARTERS
    )


def runs_here(thread: threading.Thread) -> bool:
    """Whether the caller runs in `thread`. `threading.current_thread` does not know a thread that
    was there before gevent or eventlet patched the process, and a join of itself never ends."""
    return thread.native_id == threading.get_native_id()


def start_thread(thread: threading.Thread) -> None:
    """Starts a thread. OSError if the system has none left, for which Python raises RuntimeError,
    or waits for ever; or if the process was patched by gevent or eventlet since the store was
    opened."""
    if _are_green():
        raise OSError(errno.EAGAIN, f"no thread for {thread.name}: {GREEN}")
    started = thread._started = _Started()  # type: ignore[attr-defined]
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, _no_thread(thread, str(error))) from error
    if not started.is_set():
        getattr(threading, "_limbo", {}).pop(thread, None)
        raise OSError(errno.EAGAIN, _no_thread(thread, "it found no memory to begin"))


def _no_thread(thread: threading.Thread, why: str) -> str:
    return f"no thread for {thread.name}: {why}: {used_up(errno.EAGAIN, thread=True)}"


class Pool(ThreadPoolExecutor):
    """An executor whose threads wait at a native queue. `gevent.monkey.patch_all(thread=False)`
    replaces the one in `queue`, where a native thread waits for ever.

    It has as many threads as were asked for, but no more than `POOL_THREADS_MAX`: further work
    waits for one of them.
    """

    def __init__(self, threads: int, name: str = "") -> None:
        super().__init__(min(threads, POOL_THREADS_MAX), name)
        if not _are_green():
            self._work_queue = _queue.SimpleQueue()  # type: ignore[assignment,unused-ignore]
