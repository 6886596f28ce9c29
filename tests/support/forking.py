"""Forks beside running threads, which is what a user's program may do."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator

__all__ = ["die", "fork", "in_child", "unasked_gil"]


@contextlib.contextmanager
def unasked_gil() -> Iterator[None]:
    """Inside, no thread asks this one for the GIL.

    CPython 3.11 copies such a request into a forked child, whose only thread then waits for another one to
    take the GIL, for ever.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5.0)  # a fork takes milliseconds, or seconds if all stands still
    try:
        time.sleep(0.02)  # who waits already gets it; who waits from here on is patient
        yield
    finally:
        sys.setswitchinterval(interval)


def fork() -> int:
    """`os.fork`, without the warning of Python 3.12 that threads run."""
    with unasked_gil(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def die(*_: object, **__: object) -> None:
    """In place of a step that a process does not live to do."""
    os.kill(os.getpid(), signal.SIGKILL)


def in_child(work: Callable[[], object]) -> int:
    """How a forked child ended that did `work`: 0, 1 after an exception, -9 after `die`."""
    child = fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
