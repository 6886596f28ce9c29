"""Lines of a file or a pipe, in chunks as they arrive, with a way to stop while waiting."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

__all__ = ["LineSource", "LineTooLongError", "StopSignals"]

READ_BYTES: Final = 256 * 1024


class LineTooLongError(ValueError):
    """A line that no message can hold."""


class StopSignals:
    """While entered, SIGINT and SIGTERM only set `received`; a wait in `LineSource` ends.

    So no signal can fall between a put and the line number that says so.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._read_end = -1
        self._before: dict[int, Any] = {}
        self._wakeup = -1

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


class LineSource:
    """Iterates over lists of whole lines without their newlines, in the order of the input.

    A list holds what one read gave, so that lines of a slow pipe do not wait for more. Ends with the
    input, or when a stop signal came. A last line without newline counts.
    """

    def __init__(self, descriptor: int, stop: StopSignals, longest_bytes: int) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._longest_bytes = longest_bytes

    def __iter__(self) -> Iterator[list[bytes]]:
        rest = b""
        while True:
            # select, not a plain read: Python goes on reading after a signal (PEP 475).
            select.select([self._descriptor, self._stop.descriptor], [], [])
            if self._stop.received is not None:
                return
            try:
                chunk = os.read(self._descriptor, READ_BYTES)
            except OSError as error:
                error.filename = "the input"  # the store's files have names
                raise
            if not chunk:
                break
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if lines:
                yield lines
            if len(rest) > self._longest_bytes:
                raise LineTooLongError(f"longer than {self._longest_bytes} bytes")
        if rest:
            yield [rest]
