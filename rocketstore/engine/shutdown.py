"""Closes a store once and completely, even if the thread that waits for the close is interrupted.

Python runs signal handlers in its main thread, between any two lines. Ctrl-C could stop a close
that runs there half-way: the lock would stay taken, or be released while a thread still writes. A
handler that closes the store would wait for the very close that it interrupted. So a close that the
main thread asks for runs in its own thread, and the main thread only waits. The main thread does
not wait while it is inside another call of this package, which may hold what the close needs: that
call ends first.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    BackpressureError,
    MissingSegmentsError,
    RocketStoreError,
    StoreClosedError,
)
from rocketstore.log.layout.lock import abort_exists, create_abort, remove_abort
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.threads import start_thread

if TYPE_CHECKING:
    from rocketstore.log.commitlog.checkpoint import CheckpointFile, OwnCheckpoint
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.recovery.recovery import RecoveryReport
    from rocketstore.stats.statistics import GuestFigures

__all__ = [
    "CleanShutdown",
    "Closing",
    "Ending",
    "Guest",
    "Guests",
    "Steps",
    "StillRunsError",
    "in_the_middle",
    "stopped_cleanly",
]

logger = logging.getLogger(__name__)


_Arguments = ParamSpec("_Arguments")
_Kind = TypeVar("_Kind", bound="Guest")

#: Join timeout of the closing thread, seconds, so that no thread of the store is left; bounded
#: because a signal handler may interrupt the join.
LAST_LINES_S = 1.0
#: Packages and modules that only call the store: a frame of theirs holds nothing that a close needs.
GUESTS = frozenset(
    (
        *("__main__", "aio", "api", "archive", "arrow", "cli", "metrics"),
        *("scanning", "services", "shipping", "spark", "store", "testing", "tools"),
    )
)


def in_the_middle() -> bool:
    """Whether a signal handler or a finaliser interrupted another call of this package in this
    thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):  # the callers of the close
        frame = frame.f_back
    while frame is not None and not _is_ours(frame):
        frame = frame.f_back
    return frame is not None


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame belongs to a part of the store, which may hold a lock while a handler
    runs."""
    package, _, rest = str(frame.f_globals.get("__name__")).partition(".")
    return package == "rocketstore" and bool(rest) and rest.partition(".")[0] not in GUESTS


class Closing:
    """One close: any thread calls `start`, then `wait`, as often as it likes."""

    def __init__(self) -> None:
        self._once = [None]  # the thread that takes the item does the work
        self._over = EventCount()
        self._ended = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begins the work, once: in a new thread for the main thread, else, or without threads, in
        place."""
        if threading.current_thread() is threading.main_thread() and not self.begun:
            thread = threading.Thread(
                target=self._run, args=(work,), name="rocketstore-closing", daemon=True
            )
            try:
                start_thread(thread)
                self._thread = thread
            except OSError:
                self._run(work)
        else:
            self._run(work)

    @property
    def begun(self) -> bool:
        return self._thread is not None or not self._once

    def wait(self) -> None:
        """Waits for the end of the work. Raises its error, in the first thread that waited to the
        end; that of a lock which was not given back in each: the store is not closed."""
        while not self._ended:
            seen = self._over.count
            if not self._ended:
                self._over.wait(seen)
        if self._thread is not None:
            self._thread.join(LAST_LINES_S)
        error = self._error
        if not isinstance(error, BackpressureError):
            self._error = None
        if error is not None:
            raise without_frames(error)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            self._once.pop()
        except IndexError:
            return
        try:
            work()
        except BaseException as error:
            self._error = without_frames(error)
        self._ended = True
        self._over.notify()


class Steps:
    """Runs steps and keeps their first error, so that a step that fails leaves nothing open or
    locked."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def take(
        self,
        act: Callable[_Arguments, object],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> None:
        try:
            act(*arguments, **named)
        except BaseException as error:
            if self.error is None:
                self.error = without_frames(error)
            else:
                logger.error("another step of the end failed, too: %r", error)

    def end(self) -> None:
        """Raises the first error, if there was one."""
        if self.error is not None:
            raise without_frames(self.error)


class StillRunsError(RocketStoreError):
    """A thread of a service has not ended in time, and may still write."""


class Guest(Protocol):
    """A service of one open store."""

    def stop(self) -> None:
        """Ends its threads, within seconds. The store still takes puts; nothing comes after it.

        Raises:
            StillRunsError: one that writes goes on: the store stays locked.
        """


class Ending:
    """Whether services end. A thread that makes one then uses the store no more."""

    def __init__(self) -> None:
        self.begun = False
        #: The thread that makes a service, 0: none does. Written with the lock of the services.
        self.maker = 0

    def awaits_us(self) -> bool:
        """Whether the end waits for a service that this thread makes."""
        return self.begun and self.maker == threading.get_ident()


class Guests:
    """The services of one open store, each made once, whichever `Store` object asks first."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        # Held while one is made, which may ask for another.
        self._lock = SignalSafeLock("the services")
        self._made: dict[type[Guest], Guest] = {}
        self._holds: dict[str, Callable[[], int | None]] = {}
        #: Figures of the processes that share the store, for `Store.stats`; set by the service that
        #: serves them.
        self.figures: Callable[[], tuple[GuestFigures, ...]] = tuple
        #: By the name of a hold: what `hold` was given to free the log.
        self.free: dict[str, Callable[[int, int], int | None] | None] = {}
        #: Whether one of them goes on after `stop`.
        self.still_run = False

    def get(self, kind: type[_Kind], make: Callable[[], _Kind]) -> _Kind:
        """The service of this kind; StoreClosedError once the store closes, also from within
        `make`, which close waits for."""
        with self._lock():
            if kind not in self._made:
                if self._ending.begun:
                    raise StoreClosedError(f"the store closes: {kind.__name__} cannot begin")
                outer, self._ending.maker = self._ending.maker, threading.get_ident()
                try:
                    self._made[kind] = make()
                finally:
                    self._ending.maker = outer
            return cast("_Kind", self._made[kind])

    def hold(
        self,
        name: str,
        needs_from: Callable[[], int | None],
        free: Callable[[int, int], int | None] | None = None,
    ) -> None:
        """Retention keeps the log from the physical offset on that `needs_from` gives; None: it is
        not needed. Any thread may call it. `name` is what a plan shows.

        `free(below, most)` puts again, at the end of the log, at most `most` of what is needed
        below an offset; it gives how much is left there, None where that is not worth it."""
        with self._lock():
            self._holds[name] = needs_from
            self.free[name] = free

    def holds(self) -> list[tuple[str, int]]:
        """Names of what needs the log, and from which physical offset on."""
        with self._lock():
            asked = list(self._holds.items())
        return [(name, at) for name, ask in asked if (at := ask()) is not None]

    def made(self, kind: type[_Kind]) -> _Kind | None:
        """The service of this kind, if anybody has asked for it."""
        return cast("_Kind | None", self._made.get(kind))

    def stop(self) -> None:
        """Stops all of them, the newest first. Idempotent. Raises the first error, once the others
        were stopped, too."""
        self._ending.begun = True
        with self._lock():
            made = list(self._made.values())
        steps = Steps()
        for guest in reversed(made):
            steps.take(self._stop, guest)
        steps.end()

    def _stop(self, guest: Guest) -> None:
        try:
            guest.stop()
        except StillRunsError:
            self.still_run = True
            raise


# Restores the clean shutdown that an open for writing has found, where that open fails and changed
# nothing.
#
# Otherwise a refused option, or a lack of memory, would make the next open recover as after a crash.


def stopped_cleanly(report: RecoveryReport, *, indexed: bool) -> bool:
    """Whether log, queues and index are whole on disk, so that an open has nothing to recover."""
    if report.mode != "clean" or report.cut is not None or report.damage:
        return False
    derived = min(report.dispatch_start, report.index_start if indexed else report.end)
    return derived >= report.end


class CleanShutdown:
    """The state of one open: `begin` → `changes` → `recovered` → the end of the open. An open that
    fails calls `restore`."""

    def __init__(self, layout: StoreLayout, own_file: CheckpointFile) -> None:
        self._layout = layout
        self._own_file = own_file
        self.found = not abort_exists(layout)
        self._marked = False  # True in an open for writing only
        self._stands = False
        self._before: OwnCheckpoint | None = None
        self._recovered = False

    def begin(self) -> None:
        """An open calls this before it changes anything: a process that ends after it has not stopped
        cleanly."""
        self._before = self._own_file.load()
        self._marked = self._stands = self.found
        create_abort(self._layout)

    def changes(self) -> None:
        """Called before the open changes files."""
        self._stands = False

    def recovered(self, *, unchanged: bool) -> None:
        """Called after recovery. `unchanged`: recovery only removed the clean mark from our
        checkpoint, and nothing else changes before the next call of `changes` or the end of the
        open."""
        self._stands = self._recovered = self.found and unchanged

    def restore(self, error: BaseException) -> None:
        """Called when the open ends with this error: stores the old checkpoint, then removes
        `abort`."""
        missing = self._marked and isinstance(error, MissingSegmentsError)  # before any change
        if not (self._stands or missing) or self._own_file.failed:
            return
        try:
            now = self._own_file.load()
            if self._recovered and now is not None and not now.clean:
                before = dataclasses.replace(self._before or now, clean=True)
                self._own_file.store(dataclasses.replace(before, generation=now.generation + 1))
            remove_abort(self._layout)
        except OSError as trouble:
            logger.warning("%s: the next open recovers: %s", self._layout.root, trouble)
