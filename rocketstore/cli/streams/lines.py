"""Lines of a file or a pipe, in chunks as they arrive, with a way to stop while waiting."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from typing import Final

from rocketstore.cli.signals import StopSignals

__all__ = ["LineSource", "LineTooLongError"]

READ_BYTES: Final = 256 * 1024


class LineTooLongError(ValueError):
    """A line that no message can hold."""


class LineSource:
    """Iterates over lists of whole lines without their newlines, in the order of the input.

    A list holds what one read gave, so that lines of a slow pipe do not wait for more. Ends with
    the input, or when a stop signal came. A last line without newline counts.
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
