"""Promises that are still open: `Writer.submit` gives a ticket instead of waiting.

One thread per store completes tickets when the flusher has moved far enough, those of one promise
in the order of their offsets; callbacks run there, never on the flusher (K-85).
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from rocketstore._native.append.put_result import PutResult, durability_level, durability_name
from rocketstore._native.os import syscalls
from rocketstore._native.put.completion_port import CompletionPort
from rocketstore._native.sync.futex import EventCount, timeout_ms
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import DurabilityTimeoutError, RocketStoreError, StoreClosedError
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.public import public
from rocketstore.values.threads import runs_here, start_thread

if TYPE_CHECKING:
    import concurrent.futures

    from rocketstore._native.append.appender import Log
    from rocketstore._native.sync.positions import Positions
    from rocketstore.values.timestamps import Duration

logger = logging.getLogger(__name__)

__all__ = ["Completions", "Ticket"]

DISK: Final = durability_level("disk")


@public
class Ticket:
    """A message that is in the log, on its way to the promise it was put with."""

    __slots__ = ("_asked", "_callbacks", "_completions", "_error", "_result", "_state")

    def __init__(self, completions: Completions, result: PutResult, level: str) -> None:
        self._completions = completions
        self._result = result
        self._asked = durability_level(level)
        # These three change under the lock of the completions. "late": callbacks were called with a
        # timeout; the promise may still be met, and a later callback asks again.
        self._state: Literal["pending", "late", "done", "failed"] = "pending"
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Ticket], object]] = []

    @property
    def end_offset(self) -> int:
        """Physical offset of the first byte after the message: what has to be flushed."""
        return self._result.end_offset

    def done(self) -> bool:
        """Whether `result` gives an answer without a wait: the promise is met, or can no longer be
        met.

        Raises nothing.
        """
        return self._settled or self._met or self._completions.failure(self._asked) is not None

    @property
    def _settled(self) -> bool:
        return self._state in ("done", "failed")

    @property
    def _met(self) -> bool:
        return self._completions.reached(self.end_offset, self._asked)

    def result(self, timeout_s: Duration | None = None) -> PutResult:
        """Waits until the promise is met; gives the PutResult.

        Args:
            timeout_s: Seconds to wait. None: `sync_flush_timeout_ms` of the store.

        Raises:
            DurabilityTimeoutError: the promise is not met after `timeout_s`. The message *is* in
                the log; the caller may ask again.
            StoreFailedError, StoreClosedError: the promise can no longer be met.
        """
        if self._state != "done":
            # Inside a callback a timeout is raised, not waited for: its thread serves others, too.
            given_up = self._settled or self._completions.in_callback
            if self._error is not None and given_up and not self._met:
                raise without_frames(self._error)
            self._completions.wait(self._result, self._asked, timeout_s)
        return self._result

    def exception(self, timeout_s: Duration | None = None) -> BaseException | None:
        """Waits as `result` does; gives the error that `result` would raise, or None.

        Raises:
            DurabilityTimeoutError: as `result`, since the ticket is not done.
        """
        try:
            self.result(timeout_s)
        except DurabilityTimeoutError:
            raise
        except RocketStoreError as error:
            return error
        return None

    def add_done_callback(self, callback: Callable[[Ticket], object]) -> None:
        """Calls `callback(ticket)` once the ticket is done, at once if it is done already.

        The store's completion thread calls it. It calls it also when the promise takes longer than
        `sync_flush_timeout_ms`; `ticket.exception` says so.

        Raises:
            StoreClosedError: This process is a forked child of the one that opened the store.
        """
        self._completions.check_process()
        with self._completions.lock():
            settled = self._settled
            # Before it is added: perhaps twice watched, but never not at all.
            first = not self._callbacks
            if not settled:
                self._callbacks.append(callback)
        if settled:
            self._call(callback)
        elif first:
            self._completions.watch(self)

    def future(self) -> concurrent.futures.Future[PutResult]:
        """Gives a `concurrent.futures.Future` of the same promise, for code that wants one.

        Raises:
            StoreClosedError: This process is a forked child of the one that opened the store.
        """
        import concurrent.futures  # starts slowly, and few programs ask for it

        future: concurrent.futures.Future[PutResult] = concurrent.futures.Future()

        def finish(ticket: Ticket) -> None:
            if ticket._error is not None:
                future.set_exception(without_frames(ticket._error))
            else:
                future.set_result(ticket._result)

        future.set_running_or_notify_cancel()
        self.add_done_callback(finish)
        return future

    def _complete(self, error: BaseException | None) -> None:
        """Called by the completion thread; more than once after a timeout."""
        with self._completions.lock():
            if not self._settled:
                self._error = None if error is None else without_frames(error)
                late = isinstance(error, DurabilityTimeoutError)
                self._state = "late" if late else "failed" if error is not None else "done"
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                self._call(callback)
            except BaseException:  # the thread lives on for the others, whatever one asks for
                logger.exception("a done callback of %r raised", self)

    def _call(self, callback: Callable[[Ticket], object]) -> None:
        try:
            callback(self)
        except Exception:
            logger.exception("a done callback of %r raised", self)

    def __repr__(self) -> str:
        state = self._state
        if not self._settled:
            state = "done" if self._met else "failed" if self.done() else state
        return f"Ticket({state}, physical_offset={self._result.physical_offset})"

    def __reduce__(self) -> str:
        raise TypeError("a Ticket belongs to an open store; pickle ticket.result() instead")


class _Waiter:
    """What a port completes for a ticket."""

    __slots__ = ("_ticket",)

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def done(self) -> bool:
        return False

    def set_result(self, _: object) -> None:
        self._ticket._complete(None)

    def set_exception(self, error: BaseException) -> None:
        self._ticket._complete(error)


class Completions:
    """Completes tickets that have callbacks, by a port of its own. Its thread starts with the first
    and ends with the store."""

    #: Whether a put that gives a ticket waits for the promise itself, as that of a guest does.
    at_once = False

    def __init__(
        self,
        log: Log,
        positions: Positions,
        check: Callable[[], None],
        timeout_ms: int,
    ) -> None:
        """`check()` raises once no promise will be met any more."""
        self._check = check
        self._log = log
        self._positions = positions
        self._timeout_ms = timeout_ms
        #: Of the tickets, too. A signal's handler may come inside.
        self.lock = SignalSafeLock("the tickets")
        self._token = syscalls.process_token()
        self._starting = SignalSafeLock("the start of completions")
        self._coming: list[Ticket] = []  # to the port, under the lock
        self._thread: threading.Thread | None = None
        self._closed = False

    def check_process(self) -> None:
        """Called before the lock, which another thread may have held at a fork.

        Raises:
            StoreClosedError: this process is a forked child.
        """
        syscalls.check_forked(self._token)

    @property
    def in_callback(self) -> bool:
        """Whether this is the thread that calls callbacks."""
        return self._thread is not None and runs_here(self._thread)

    def wait(self, result: PutResult, asked: int, timeout_s: Duration | None) -> None:
        """Blocks until `result` met the promise; raises as Ticket.result says."""
        left_ms = self._timeout_ms if timeout_s is None else timeout_ms(timeout_s)
        self._log.await_promise(result.end_offset, asked, left_ms, timeout_s is not None, result)

    def reached(self, offset: int, asked: int) -> bool:
        """Whether an offset met the promise `asked`."""
        positions, copies = self._positions, self._log.group.copies
        if asked < DISK:
            return asked == 0 or offset <= positions.committed
        on_disk = offset <= positions.flushed
        if asked == DISK or copies is None or not on_disk:
            return on_disk
        return copies.met(offset, asked)

    def watch(self, ticket: Ticket) -> None:
        """Completes `ticket` when the log has moved far enough, fails it after the timeout."""
        self._start()
        with self.lock():
            closed = self._closed
            if not closed:
                self._coming.append(ticket)
        if not closed:
            self._log.request_flush(ticket.end_offset)
            self._log.progress.notify()
        elif self.reached(ticket.end_offset, ticket._asked):
            self.wait(ticket._result, ticket._asked, 0)  # its result says the promise
            ticket._complete(None)
        else:
            ticket._complete(StoreClosedError("the store was closed"))

    def _start(self) -> None:
        with self._starting() as nested:
            # A handler that comes while its thread is here starts nothing: this call does.
            if nested or self._closed or self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="rocketstore-completions", daemon=True)
            start_thread(thread)
            self._thread = thread

    def _run(self) -> None:
        port = CompletionPort(self._log, EventCount(), -1, self._timeout_ms)
        progress = self._log.progress  # moves when the store fails or ends, too
        while True:
            seen = progress.count
            left_s, closed = self._step(port)
            if closed and not port.pending:
                return
            progress.wait(seen, None if left_s is None else math.ceil(left_s * 1000))

    def _step(self, port: CompletionPort) -> tuple[float | None, bool]:
        """Completes tickets that have an answer; the seconds until another has waited for long
        enough, if any waits, and whether no ticket comes any more."""
        with self.lock():
            coming, self._coming = self._coming, []
            closed = self._closed
        for ticket in coming:
            port.promise(ticket._result, durability_name(ticket._asked), _Waiter(ticket))
        port.settle()
        return port.expire(), closed

    def failure(self, asked: int = DISK) -> BaseException | None:
        """Why such a promise is not met any more: the store failed or closed. None while it
        works."""
        try:
            self._check()
        except RocketStoreError as error:
            return error
        copies = self._log.group.copies
        return copies.error if copies is not None and asked > DISK else None

    def close(self) -> None:
        """Ends the thread. Tickets that are still pending have been flushed or failed by now."""
        with self.lock():
            self._closed = True
        with self._starting():
            thread = self._thread
        self._log.progress.notify()
        if thread is not None and not runs_here(thread):
            thread.join(5.0)
