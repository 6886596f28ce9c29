"""SIGINT and SIGTERM: how they end a command, and how a command that stores puts them off.

SIGTERM ends a command as Ctrl-C does: the command closes what it has open and removes what it was
making.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rocketstore.cli import exit_codes

__all__ = ["StopSignals", "terminated_as_interrupted"]


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """While entered, SIGTERM raises SystemExit in the main thread. A handler of SIGTERM that is
    set, or SIG_IGN, stays."""

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


class StopSignals:
    """While entered, SIGINT and SIGTERM only set `received`; a wait in `LineSource` ends.

    So no signal can fall between a put and the line number that says so.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._read_end = -1
        self._before: dict[int, Any] = {}

    @property
    def descriptor(self) -> int:
        """Readable once a signal came."""
        return self._read_end

    def __enter__(self) -> StopSignals:
        self._read_end, write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(write_end, False)
        self._write_end = write_end
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read_end)
        os.close(self._write_end)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        os.write(self._write_end, b"!")
