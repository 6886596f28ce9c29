"""CompletionPort: a store for an event loop, with one descriptor to watch instead of threads that
block."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from rocketstore._native.os import syscalls
from rocketstore._native.put import completion_port as native
from rocketstore._native.sync.futex import EventCount, EventFd
from rocketstore.errors import RocketStoreError, StoreClosedError, StoreReplacedError
from rocketstore.values.public import public
from rocketstore.values.threads import start_thread

if TYPE_CHECKING:
    from rocketstore.log.read.source import Arrivals
    from rocketstore.store import Store

__all__ = ["CompletionPort", "Placed"]

Placed = public(native.Placed)

#: Time after which the watcher of another process looks whether the port is still there, ms.
LOOK_AGAIN_MS = 200


@public
class CompletionPort(native.CompletionPort):
    """What an event loop needs of an open store; `rocketstore.aio` is made of it.

    Watch `fileno()`; when it is readable, call `drain` and `settle`, which completes waiters:
    objects with `done()`, `set_result(value)` and `set_exception(error)`, like futures. One thread
    uses a port; a store may have many ports. A flush makes the descriptor readable once, however
    many waiters it serves.

    `put`, `promise` and `promise_flushed` return a `Placed`. After ATTEND call `request_flush`
    before long, and `expire` now and again after the seconds that it returns. `pending` puts of
    `pending_bytes` wait for the disk; `max_pending` and `max_pending_bytes` bound them.
    """

    def __init__(self, store: Store) -> None:
        """Raises:
        StoreClosedError: The store is closed.
        TypeError: A second call for one port.
        """
        if hasattr(self, "_end"):  # its waiters and its descriptor are of the first store
            raise TypeError("CompletionPort.__init__: called a second time; make another port")
        engine = store._open()
        log = store._writing("put").commit_log.log if engine.takes_puts else None
        #: Whether another process has the store: no flush rings here, `Store.wait_flushed` waits for it.
        self.elsewhere = log is not None and log.elsewhere is not None
        source = engine.reader.source.arrival
        signal = source if isinstance(source, EventCount) else EventCount()
        self._source: Arrivals | None = None if signal is source else source
        self._signal = signal
        self._watcher: threading.Thread | None = None
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            super().__init__(log, signal, self._descriptor, engine.config.sync_flush_timeout_ms)
        except BaseException:
            os.close(self._descriptor)
            raise
        # A loop may end without a close; its bell must not stay in the store's signals.
        bell = self._bell
        hung = [signal] if log is None else [signal, log.progress]
        token = syscalls.process_token()
        self._end = weakref.finalize(self, _end, hung, bell, self._descriptor, token)

    def fileno(self) -> int:
        """Gives the descriptor to watch: it is readable when `settle` has something to do.

        Raises nothing.
        """
        return self._descriptor

    def drain(self) -> None:
        """Makes the descriptor not readable. Call it before `settle`.

        Raises:
            OSError: The port was closed.
        """
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 8)

    def watch_arrivals(self, seen: int, waiter: native.Waiter) -> None:
        """Calls `waiter.set_result(None)` once `arrivals` is no longer `seen`, or without a reason.

        Raises:
            OSError: The thread that watches another process's store cannot be started.
        """
        if self._source is not None and self._watcher is None:
            # Another process writes: its page of positions has no descriptor to watch.
            self._watcher = threading.Thread(
                target=_watch,
                args=(weakref.ref(self), self._source, self._signal),
                name="rocketstore-watcher",
                daemon=True,
            )
            start_thread(self._watcher)
            self._signal.notify()  # what came before the thread counts as arrived
        super().watch_arrivals(seen, waiter)

    def close(self) -> None:
        """Closes the descriptor: the port rings no more and takes no puts. Waiters stay as they
        are.

        A second call does nothing. Raises nothing.
        """
        self._stop()
        self._end()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._end.alive


def _end(hung: list[EventCount], bell: EventFd, descriptor: int, token: int) -> None:
    # In a forked child no thread rings the bell, and a thread of its parent may have held the lock
    # of a signal.
    if not syscalls.forked_since(token):
        for signal in hung:
            signal.take_down(bell)
    os.close(descriptor)


def _watch(port: weakref.ref[CompletionPort], source: Arrivals, signal: EventCount) -> None:
    """Passes arrivals on for as long as the port is there and the store is open. An error counts as
    an arrival: the consumers that it wakes look themselves, and raise it."""
    seen = -1
    while (found := port()) is not None and not found.closed:
        del found
        try:
            count = source.wait(seen, LOOK_AGAIN_MS)
        except (StoreClosedError, StoreReplacedError):
            break
        except (RocketStoreError, OSError):
            count = -1
            time.sleep(LOOK_AGAIN_MS / 1000)
            signal.notify()
        if count != seen:
            seen = count
            signal.notify()
    signal.notify()
