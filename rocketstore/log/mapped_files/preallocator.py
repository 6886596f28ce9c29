"""The log's next segment, made in a thread before a put needs it (D-06, D-16, semantics 5).

A put takes the segment that is ready. An error of the disk goes to the put that waits, with its
cause, and is forgotten: the next put tries again, after a pause that grows with each error (K-36).
One segment is enough: the next one is wanted once the log has come half through this one.
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

#: Duration of a creation, ms; a longer one is logged (S004-52), as a mere fact: an idle disk may
#: take as long.
SLOW_CREATION_MS: Final = 10
#: Duration of a creation, ms; a longer one is logged as a warning.
VERY_SLOW_CREATION_MS: Final = 500
#: Pause after an error, seconds; it doubles from the first to the second with each error.
BACKOFF_MIN_S: Final = 0.010
BACKOFF_MAX_S: Final = 1.0


class Preallocator(Worker):
    """Makes segments, one at a time; at most one is ready and not in use (D-07).

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
        self._wanted: int | None = None  # start of the segment that was asked for
        self._making: int | None = None  # start of the one that the thread makes now
        self._ready: MappedFile | None = None  # the wanted one, once it is made
        self._waiting = False  # whether a put waits in `take`
        self._error: OSError | None = None  # for that put
        #: The segment that was handed over last. A signal handler may end the put before it has it.
        self.given: MappedFile | None = None
        self._backoff_s = 0.0
        self._not_before = 0.0  # time.monotonic() of the next try
        self._last_error: OSError | None = None
        self._end: BaseException | None = None  # why no segment is made any more

    # ---- asking: puts ----

    def request(self, start_offset: int) -> bool:
        """Asks for a segment without waiting. False if another one is wanted, or none is made any
        more."""
        with self._guard():
            # A put may ask for a segment that another put has taken meanwhile.
            taken = self.given is not None and start_offset <= self.given.start_offset
            if self._end is not None or taken:
                return False
            if self._wanted is None:
                self._wanted = start_offset
            asked = self._wanted == start_offset
        self.wake()
        return asked

    def take(self, start_offset: int, timeout_s: float) -> MappedFile:
        """Gives the caller the segment that starts at `start_offset`; the caller owns it then. One
        thread at a time calls this.

        Raises:
            DiskFullError, OSError: why it could not be made. Nothing was changed; try again.
            BackpressureError: not ready within `timeout_s`.
            StoreClosedError, StoreFailedError: no segment is made any more.
        """
        deadline = time.monotonic() + timeout_s
        with self._guard():
            self._check_alive()
            if self._wanted != start_offset:
                self._drop()  # the log goes on elsewhere
            self._wanted, self._error, self._waiting = start_offset, None, True
        self.wake()
        try:
            while True:
                seen = self._changed.count
                with self._guard():
                    if self._error is not None:
                        raise without_frames(self._error)
                    if (file := self._hand_over()) is not None:
                        return file
                    self._check_alive()
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise self._too_late(start_offset, timeout_s)
                self._changed.wait(seen, math.ceil(left * 1000))
        finally:
            self._waiting = False

    def _hand_over(self) -> MappedFile | None:
        file = self._ready
        if file is not None and file.fd >= 0 and os.fstat(file.fd).st_nlink == 0:
            # D-04: a RocketMQ that starts meanwhile removes empty segments before it fails.
            logger.warning("%s was removed by another process; it is made again", file.path)
            self._ready = None
            file.close()
            self.wake()
        elif file is not None:
            self.given, self._ready, self._wanted = file, None, None
            return file
        return None

    def _too_late(self, start: int, timeout_s: float) -> BackpressureError:
        """The segment stays wanted, so that a later call finds its outcome."""
        state = "is being made" if self._making == start else "waits to be made"
        text = f"the segment at {start} was not ready after {timeout_s:.1f} s: it {state}"
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
        """Reserves blocks ahead in the current segment, then makes the one that is wanted."""
        self._extend()
        with self._guard():
            start = self._wanted
            if start is None or self._ready is not None:
                return None
            pause_s = self._not_before - time.monotonic()
            if pause_s > 0:
                return pause_s
            self._making = start
        began = time.monotonic()
        try:
            file = self._create(start)
        except FileExistsError:
            raise  # D-06: a file that the store does not know; the store fails
        except OSError as error:
            self._failed(start, error)
            return 0
        elapsed_ms = (time.monotonic() - began) * 1000
        if elapsed_ms > SLOW_CREATION_MS:
            logger.log(
                logging.WARNING if elapsed_ms > VERY_SLOW_CREATION_MS else logging.INFO,
                "creating the segment at %d took %.0f ms, puts waiting: %d",
                start,
                elapsed_ms,
                self._waiting,
            )
        with self._guard():
            self._making = None
            self._backoff_s = self._not_before = 0.0
            self._last_error = None
            if self._wanted == start:
                self._ready = file
            else:
                self._withdraw(file)
            self._changed.notify()
        return 0

    def _failed(self, start: int, error: OSError) -> None:
        with self._guard():
            self._making = None
            self._backoff_s = min(max(self._backoff_s * 2, BACKOFF_MIN_S), BACKOFF_MAX_S)
            self._not_before = time.monotonic() + self._backoff_s
            if self._last_error is None or self._last_error.errno != error.errno:
                logger.warning("the segment at %d cannot be made: %s", start, error)
            self._last_error = error = without_frames(error)
            # Without a waiting put it is tried again, but not for ever: each try takes, for a
            # moment, what room the disk has left. The put that needs it asks again.
            if self._wanted == start and (self._waiting or self._backoff_s >= BACKOFF_MAX_S):
                self._wanted, self._error = None, error
            self._changed.notify()

    def _drop(self) -> None:
        """Forgets what is wanted, and removes it if it is made."""
        file, self._ready, self._wanted = self._ready, None, None
        if file is not None:
            self._withdraw(file)

    # ---- end ----

    def spare(self) -> MappedFile | None:
        """The segment that is ready and not taken."""
        return self._ready

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
        """Removes a segment that was made and not taken (D-07). Call it last, after `stop`. A file
        that a failed disk keeps is an empty segment after the log, which the next open knows."""
        with self._guard():
            try:
                self._drop()
            except OSError as error:
                logger.warning("an unused segment cannot be removed: %s", error)
