"""SIGTERM ends a command as Ctrl-C does: what it has open is closed, what it was making is removed."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rocketstore.cli import exit_codes

__all__ = ["terminated_as_interrupted"]


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """While entered, SIGTERM raises SystemExit in the main thread. Who had SIGTERM handled or ignored keeps that."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(exit_codes.TERMINATED)

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
