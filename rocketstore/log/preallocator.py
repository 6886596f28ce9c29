"""Makes the next segment before it is needed, in a thread of its own (D-06, D-16).

At most two wishes wait: the segment that a put needs now and the one after it. An error of the disk goes
to the put that waits, with its cause, and is then forgotten: the next wish tries again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketstore._native import syscalls
from rocketstore.errors import BackpressureError, StoreClosedError
from rocketstore.log.worker import Worker

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile

logger = logging.getLogger(__name__)

MAX_WISHES = 2
SLOW_CREATION_MS = 10


class Preallocator(Worker):
    """`create(start_offset)` makes one segment: allocated, synced, published."""

    def __init__(
        self, create: Callable[[int], MappedFile], on_failure: Callable[[BaseException], None]
    ) -> None:
        super().__init__("rocketstore-preallocator", on_failure)
        self._create = create
        self._changed = threading.Condition()
        self._wishes: list[int] = []
        self._ready: dict[int, MappedFile] = {}
        self._errors: dict[int, OSError] = {}
        self._closing = False

    def request(self, start_offset: int) -> bool:
        """Wishes for a segment without waiting; False when two wishes already wait."""
        with self._changed:
            wanted = start_offset not in self._ready and start_offset not in self._wishes
            if wanted and len(self._wishes) >= MAX_WISHES:
                return False
            if wanted:
                self._wishes.append(start_offset)
                self._wishes.sort()  # the smaller offset is needed first
        self.wake()
        return True

    def take(self, start_offset: int, timeout_s: float) -> MappedFile:
        """The segment that starts at `start_offset`, made if it is not ready.

        Raises:
            DiskFullError, OSError: what its creation ended with.
            BackpressureError: not within `timeout_s`; it is still being made, a later call finds it.
            StoreClosedError: the store was closed meanwhile; nobody takes a segment from here on.
        """
        with self._changed:
            self._errors.pop(start_offset, None)  # of an earlier wish that nobody waited for
        self.request(start_offset)
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._closing:
                    raise StoreClosedError("the store was closed while a put waited for a segment")
                if start_offset in self._ready:
                    return self._ready.pop(start_offset)
                if start_offset in self._errors:
                    raise self._errors.pop(start_offset)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BackpressureError(
                        f"the segment at {start_offset} was not ready after {timeout_s:.1f} s; "
                        "the disk is slow to allocate it, try again"
                    )
                if start_offset not in self._wishes:
                    self._wishes = [start_offset, *self._wishes][:MAX_WISHES]
                    self.wake()
                self._changed.wait(left)

    def step(self) -> float | None:
        """Makes the segment of the smallest wish."""
        with self._changed:
            if not self._wishes:
                return None
            start = self._wishes[0]
            waiting = len(self._wishes)
        began = time.monotonic()
        try:
            file: MappedFile | None = self._create(start)
            error = None
        except OSError as caught:
            file, error = None, caught
        elapsed = (time.monotonic() - began) * 1000
        if elapsed > SLOW_CREATION_MS:
            logger.warning(
                "creating the segment at %d took %.0f ms, %d waiting", start, elapsed, waiting
            )
        with self._changed:
            if start in self._wishes:
                self._wishes.remove(start)
            if file is not None:
                self._ready[start] = file
                self._errors.pop(start, None)
            elif error is not None:
                logger.warning("cannot create the segment at %d: %s", start, error)
                self._errors[start] = error
            self._changed.notify_all()
        return 0

    def stop(self, timeout_s: float | None = None) -> bool:
        """Who waits for a segment is told; the one that is being made is finished."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        return super().stop(timeout_s)

    def spare(self) -> MappedFile | None:
        """A segment that is ready and not taken, if any."""
        with self._changed:
            return next(iter(self._ready.values()), None)

    def discard(self) -> None:
        """Removes what was made and not used (D-07). For the end, after stop()."""
        with self._changed:
            ready, self._ready = self._ready, {}
            self._errors.clear()
        for file in ready.values():
            if file.path:
                syscalls.unlink(file.path)
                syscalls.sync_directory(file.path.rpartition("/")[0])
            file.close()
