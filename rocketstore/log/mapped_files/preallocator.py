"""The log's next segment, made in a thread before a put needs it (D-06, D-16, semantics 5).

A put takes the segment that is ready. An error of the disk goes to the put that waits, with its
cause, and is forgotten: the next put tries again, after a pause that grows with each error (K-36).
Queue files have a thread of their own (`queues/queue_preallocator`).
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import BackpressureError, StoreClosedError, StoreFailedError
from rocketstore.log.mapped_files.new_file import withdraw_file
from rocketstore.log.worker import Worker
from rocketstore.values.kept_errors import without_frames

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile

__all__ = ["Preallocator"]

logger = logging.getLogger(__name__)

#: Segments asked for and not ready, count.
MAX_REQUESTS: Final = 2
#: Segments asked for, ready or not, count; it bounds the zeros after the end of the log (D-07).
MAX_SEGMENTS: Final = 3
#: Duration of a creation, ms; a longer one is logged (S004-52), as a mere fact: an idle disk may
#: take as long.
SLOW_CREATION_MS: Final = 10
#: Duration of a creation, ms; a longer one is logged as a warning.
VERY_SLOW_CREATION_MS: Final = 500
#: Pause after an error, seconds; it doubles from the first to the second with each error.
BACKOFF_MIN_S: Final = 0.010
BACKOFF_MAX_S: Final = 1.0


class _Request:
    """A segment that was asked for: queued, then being made, then ready; or failed."""

    __slots__ = ("error", "file", "making", "start", "waiting")

    def __init__(self, start: int) -> None:
        self.start = start
        self.making = False
        self.waiting = 0  # threads in `take`
        self.file: MappedFile | None = None
        self.error: BaseException | None = None


class Preallocator(Worker):
    """Makes segments, the smaller start first. At most two requests are queued at a time.

    `create(start_offset)` makes one: allocated, synced, named (`MappedFileQueue.make`). `withdraw`
    removes one that is not needed. `extend` gives the segment in use blocks, if it needs some.
    """

    def __init__(
        self,
        create: Callable[[int], MappedFile],
        on_failure: Callable[[BaseException], None],
        *,
        withdraw: Callable[[MappedFile], None] = withdraw_file,
        extend: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("rocketstore-preallocator", self._worker_failed)
        self._create = create
        self._fail_store = on_failure
        self._withdraw = withdraw
        self._extend = extend
        self._changed = EventCount()
        # No condition variable: it waits, enters and leaves in Python, where a signal handler may
        # raise.
        self._guard = SignalSafeLock("the segments made ahead")
        # Everything below is guarded by it.
        self._requests: dict[int, _Request] = {}
        self._taken = -1  # start of the newest segment that was handed over
        # That segment. A signal handler may end the put before the put has it.
        self._given: MappedFile | None = None
        self._backoff_s = 0.0
        self._not_before = 0.0  # time.monotonic() of the next try
        self._last_error: OSError | None = None
        self._end: BaseException | None = None  # why no segment is made any more

    # ---- asking: puts ----

    def request(self, start_offset: int) -> bool:
        """Asks for a segment without waiting. False if two others are queued, or none is made any
        more."""
        with self._guard():
            # A put may ask for a segment that another put has taken meanwhile.
            if self._end is not None or start_offset <= self._taken:
                return False
            asked = self._ask(start_offset, urgent=False) is not None
        self.wake()
        return asked

    def take(self, start_offset: int, timeout_s: float) -> MappedFile:
        """The segment that starts at `start_offset`; the caller owns it from here on.

        Raises:
            DiskFullError, OSError: why it could not be made. Nothing was changed; try again.
            BackpressureError: not ready within `timeout_s`.
            StoreClosedError, StoreFailedError: no segment is made any more.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._guard():
                self._expire(start_offset)
                if self._given is not None:
                    return self._given
                request = self._ask(start_offset, urgent=True)
            assert request is not None  # an urgent request is never refused
            file = self._wait(request, deadline, timeout_s)
            if file is not None:
                return file

    def _ask(self, start: int, *, urgent: bool) -> _Request | None:
        """The request for `start`, made if there is none. An urgent one replaces another."""
        self._check_alive()
        request = self._requests.get(start)
        if request is not None:
            return request
        queued = sum(request.file is None for request in self._requests.values())
        if queued >= MAX_REQUESTS or len(self._requests) >= MAX_SEGMENTS:
            if not urgent:
                return None
            self._drop_last()
        request = self._requests[start] = _Request(start)
        return request

    def _drop_last(self) -> None:
        """Forgets the request with the greatest start, to make room for one that is needed now."""
        request = self._requests.pop(max(self._requests))
        request.error = BackpressureError(f"a segment before {request.start} is needed first")
        self._discard(request)
        self._changed.notify()

    def _expire(self, start: int) -> None:
        """Forgets requests before `start`: the log has passed them."""
        for old in [start_of for start_of in self._requests if start_of < start]:
            self._discard(self._requests.pop(old))
        if self._given is not None and self._given.start_offset != start:
            self._given = None

    def _wait(self, request: _Request, deadline: float, timeout_s: float) -> MappedFile | None:
        """The file; None to ask again, because it was taken or removed meanwhile."""
        self.wake()
        request.waiting += 1
        try:
            while True:
                seen = self._changed.count
                with self._guard():
                    if request.file is not None or request.error is not None:
                        return self._hand_over(request)
                    self._check_alive()
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise self._too_late(request, timeout_s)
                self._changed.wait(seen, math.ceil(left * 1000))
        finally:
            request.waiting -= 1

    def _hand_over(self, request: _Request) -> MappedFile | None:
        if request.error is not None:
            raise without_frames(request.error)
        file = request.file
        if self._requests.get(request.start) is not request or file is None:
            return None  # another thread has taken it
        self._given, self._taken = file, request.start
        del self._requests[request.start]
        if file.fd >= 0 and os.fstat(file.fd).st_nlink == 0:
            # D-04: a RocketMQ that starts meanwhile removes empty segments before it fails.
            logger.warning("%s was removed by another process; it is made again", file.path)
            self._given = None
            file.close()
            return None
        return file

    def _too_late(self, request: _Request, timeout_s: float) -> BackpressureError:
        """The request stays, so that a later call finds its outcome."""
        others = len(self._requests) - 1
        state = "is being made" if request.making else f"waits, {others} others with it"
        text = f"the segment at {request.start} was not ready after {timeout_s:.1f} s: it {state}"
        if self._last_error is not None:
            text += f"; the last try ended with: {self._last_error}"
        error = BackpressureError(text)
        if self._last_error is not None:
            error.__cause__ = without_frames(self._last_error)
        logger.warning("%s", text)
        return error

    def _check_alive(self) -> None:
        if self._end is None:
            return
        if isinstance(self._end, StoreClosedError):
            raise StoreClosedError(*self._end.args)
        error = StoreFailedError(f"no segment is made any more: {self._end!r}")
        raise error from without_frames(self._end)

    # ---- making: the worker's thread ----

    def step(self) -> float | None:
        """Reserves blocks ahead in the current segment, then makes the one with the smallest
        start."""
        self._extend()
        with self._guard():
            queued = [request for request in self._requests.values() if request.file is None]
            if not queued:
                return None
            pause_s = self._not_before - time.monotonic()
            if pause_s > 0:
                return pause_s
            request = min(queued, key=lambda request: request.start)
            request.making = True
        began = time.monotonic()
        try:
            file = self._create(request.start)
        except FileExistsError:
            raise  # D-06: a file that the store does not know; the store fails
        except OSError as error:
            self._failed(request, error)
            return 0
        elapsed_ms = (time.monotonic() - began) * 1000
        if elapsed_ms > SLOW_CREATION_MS:
            logger.log(
                logging.WARNING if elapsed_ms > VERY_SLOW_CREATION_MS else logging.INFO,
                "creating the segment at %d took %.0f ms, queue length %d, puts waiting: %d",
                request.start,
                elapsed_ms,
                len(queued),
                request.waiting,
            )
        with self._guard():
            request.making = False
            request.file = file
            self._backoff_s = self._not_before = 0.0
            self._last_error = None
            if self._requests.get(request.start) is not request:
                self._discard(request)  # expired while it was made
            self._changed.notify()
        return 0

    def _failed(self, request: _Request, error: OSError) -> None:
        with self._guard():
            request.making = False
            self._backoff_s = min(max(self._backoff_s * 2, BACKOFF_MIN_S), BACKOFF_MAX_S)
            self._not_before = time.monotonic() + self._backoff_s
            if self._last_error is None or self._last_error.errno != error.errno:
                logger.warning("the segment at %d cannot be made: %s", request.start, error)
            self._last_error = error = without_frames(error)
            # A request without a waiting put is tried again, but not for ever: each try takes, for
            # a moment, what room the disk has left. The put that needs it asks again.
            if request.waiting or self._backoff_s >= BACKOFF_MAX_S:
                request.error = error
                if self._requests.get(request.start) is request:
                    del self._requests[request.start]
            self._changed.notify()

    def _discard(self, request: _Request) -> None:
        file, request.file = request.file, None
        if file is not None:
            self._withdraw(file)

    # ---- end ----

    def spare(self) -> MappedFile | None:
        """The segment that is ready and not taken, the one with the smallest start."""
        with self._guard():
            ready = [r for r in self._requests.values() if r.file is not None]
            return min(ready, key=lambda request: request.start).file if ready else None

    def stop(self, timeout_s: float | None = None) -> bool:
        """No more segments; puts that wait for one get StoreClosedError now."""
        self._finish(StoreClosedError("the store was closed while a put waited for a segment"))
        return super().stop(timeout_s)

    def _worker_failed(self, error: BaseException) -> None:
        self._finish(error)
        self._fail_store(error)

    def _finish(self, end: BaseException) -> None:
        with self._guard():
            if self._end is None:
                self._end = without_frames(end)
            self._changed.notify()

    def discard(self) -> None:
        """Removes segments that were made and not taken (D-07). Call it last, after `stop`. A file
        that a failed disk keeps is an empty segment after the log, which the next open knows."""
        with self._guard():
            requests, self._requests = self._requests, {}
            for request in requests.values():
                try:
                    self._discard(request)
                except OSError as error:
                    logger.warning("an unused segment cannot be removed: %s", error)
