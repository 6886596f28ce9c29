"""Lines of a file or a pipe, in chunks as they arrive, with a way to stop while waiting."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rocketstore.cli.signals import StopSignals

__all__ = ["LineSource", "LongPart"]

READ_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class LongPart:
    """A piece of a line that is longer than a message may be, and whether the line ends with it."""

    bytes: bytes
    ends: bool


class LineSource:
    """Iterates over lists of whole lines without their newlines, in the order of the input.

    A list holds what one read gave, so that lines of a slow pipe do not wait for more. A line
    that is too long comes by itself, in parts as they are read: it takes no memory and no other
    line with it. Ends with the input, or when a stop signal came. A last line without newline
    counts.
    """

    def __init__(self, descriptor: int, stop: StopSignals, longest_bytes: int) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._longest_bytes = longest_bytes

    def __iter__(self) -> Iterator[list[bytes] | LongPart]:
        rest = b""
        inside = False  # of a line that is too long
        for chunk in self._chunks():
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            if inside and lines:
                yield LongPart(lines.pop(0), ends=True)
                inside = False
            yield from self._split(lines)
            if inside or len(rest) > self._longest_bytes:
                yield LongPart(rest, ends=False)
                rest, inside = b"", True
        if self._stop.received is None and (rest or inside):
            yield from [LongPart(rest, ends=True)] if inside else [[rest]]

    def _chunks(self) -> Iterator[bytes]:
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
                return
            yield chunk

    def _split(self, lines: list[bytes]) -> Iterator[list[bytes] | LongPart]:
        """The lines, with those between that are too long."""
        if not lines or len(max(lines, key=len)) <= self._longest_bytes:
            yield from [lines] if lines else []
            return
        fitting: list[bytes] = []
        for line in lines:
            if len(line) <= self._longest_bytes:
                fitting.append(line)
                continue
            if fitting:
                yield fitting
            yield LongPart(line, ends=True)
            fitting = []
        if fitting:
            yield fitting
