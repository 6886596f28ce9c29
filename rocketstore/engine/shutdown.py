"""The close of a store, which happens once and to its end, whatever becomes of those who wait for it.

Python runs the handlers of signals in its main thread, between any two lines. A close that runs there could be left
in the middle by Ctrl-C, with the lock kept or, worse, given away while a thread still writes; and a handler that
closes the store would wait for the very close that it interrupted. So a close that is asked for there has a thread
of its own, and the main thread only waits. It does not wait where it stands in the middle of another call of ours,
which may hold what the close needs: that call ends first, and the close behind it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec

from rocketstore._native.waiting import Signal
from rocketstore.log.worker import start_thread

__all__ = ["Closing", "Steps", "in_the_middle"]

logger = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")

#: For the end of a thread that has no more to do than to end, so that whoever waits finds nothing left of the store.
#: Bounded: a handler may come inside a join.
LAST_LINES_S = 1.0
#: Packages that only call the store: a frame of theirs holds nothing that a close needs.
FACES = frozenset(
    (
        "__main__",
        "aio",
        "arrow",
        "cli",
        "metrics",
        "replication",
        "services",
        "spark",
        "tools",
        "ui",
    )
)


def in_the_middle() -> bool:
    """Whether a signal's handler or a finaliser has brought this thread here from within another call of ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):  # those who ask for the close
        frame = frame.f_back
    while frame is not None and not _is_ours(frame):
        frame = frame.f_back
    return frame is not None


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame belongs to a part of the store, which may hold a lock while a handler runs."""
    package, _, rest = str(frame.f_globals.get("__name__")).partition(".")
    return package == "rocketstore" and bool(rest) and rest.partition(".")[0] not in FACES


class Closing:
    """One close: `start` it, then `wait`, from any thread and as often as wanted."""

    def __init__(self) -> None:
        self._once = [None]  # whoever takes it out does the work
        self._over = Signal()
        self._ended = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        """In place where no signal's handler runs, or no thread can be had. Nothing where it has begun."""
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
        """Until the work has ended. Raises its error, to the first who waits to the end."""
        while not self._ended:
            seen = self._over.count
            if not self._ended:
                self._over.wait(seen)
        if self._thread is not None:
            self._thread.join(LAST_LINES_S)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            self._once.pop()
        except IndexError:
            return
        try:
            work()
        except BaseException as error:
            self._error = error
        self._ended = True
        self._over.notify()


class Steps:
    """Keeps the first error of several steps, so that one that fails leaves nothing open or locked."""

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
                self.error = error
            else:
                logger.error("another step of the end failed, too: %r", error)

    def end(self) -> None:
        """Raises the first error, if there was one."""
        if self.error is not None:
            raise self.error
