"""A thread with one job: flusher, dispatcher, preallocator and other services are subclasses."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.threads import runs_here, start_thread

__all__ = ["Worker"]

logger = logging.getLogger(__name__)


class Worker:
    """Calls `step` again and again in a thread of its own, and sleeps in between until woken.

    An exception ends the thread and goes to `on_failure`, which fails the store: it is never only
    logged. `signal` is what `wake` moves; native code that shares it wakes the worker itself.
    """

    def __init__(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        *,
        signal: EventCount | None = None,
    ) -> None:
        self.name = name
        self.signal = EventCount() if signal is None else signal
        self._on_failure = on_failure
        # `stop` and `end_with` write under the lock, `start` before them; the thread itself writes
        # `_failure` only.
        self._lock = SignalSafeLock("a worker's state")
        self._thread: threading.Thread | None = None
        self._first = [None]  # the thread takes it out, or a `stop` that comes first
        self._stopping = False
        self._last_act: Callable[[], None] | None = None
        self._failure: BaseException | None = None
        self._seen = 0

    def step(self) -> float | None:
        """One round. Returns seconds until the next one: None until woken, 0 at once."""
        raise NotImplementedError

    def finish(self) -> None:
        """Runs once in the thread when it was stopped, after its last step; not after a failure."""

    def start(self) -> None:
        if self._thread is not None or self._stopping:
            raise RuntimeError(f"{self.name} was started or stopped before")
        # Without the lock, and known before it runs: the exception of a signal's handler may end
        # this anywhere.
        self._thread = threading.Thread(target=self._begin, name=self.name, daemon=True)
        try:
            start_thread(self._thread)
        except OSError:
            self._take_first()  # one that is late after all does nothing
            self._thread = None
            raise

    def wake(self) -> None:
        """The next step comes at once; one that runs now is followed by another."""
        self._notify()

    def _notify(self) -> None:
        self.signal.notify()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Lets the step that runs end, then `finish`. False when that takes longer than the time.

        Idempotent; from any thread, its own included, where it only asks.
        """
        with self._lock():
            self._stopping = True
            thread = self._thread
        self._notify()
        if thread is None or runs_here(thread):
            return True
        # One that was started may not have come to its first line: `finish` is still to be run, for
        # what was put.
        if not thread.is_alive() and self._take_first():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def end_with(self, act: Callable[[], None]) -> bool:
        """Runs `act` in the thread in place of its next step, which was its last. False when the
        thread does not run, or is stopping."""
        with self._lock():
            if self._stopping or not self.alive:
                return False
            self._last_act = act
        self._notify()
        return True

    @property
    def alive(self) -> bool:
        """Whether the thread runs; not before `start`, after `stop`, a failure or a fork."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """What ended the thread, if `stop` did not."""
        return self._failure

    def _take_first(self) -> bool:
        try:
            self._first.pop()
        except IndexError:
            return False
        return True

    def _begin(self) -> None:
        if self._take_first():
            self._run()

    def _run(self) -> None:
        try:
            self._rounds()
            self.finish()
        except BaseException as error:
            self._failure = without_frames(error)
            logger.error("%s failed: %r", self.name, error)
            self._on_failure(error)

    def _rounds(self) -> None:
        while True:
            # The count first: whatever happens from here on makes the wait below return at once.
            seen = self._seen = self.signal.count
            if self._stopping:
                return
            if self._last_act is not None:
                self._last_act()
                return
            pause_s = self.step()
            if pause_s is None:
                self.signal.wait(seen, None)
            elif pause_s > 0:
                self.signal.wait(seen, math.ceil(pause_s * 1000))
