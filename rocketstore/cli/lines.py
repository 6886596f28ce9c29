"""Lines of a file or a pipe, in chunks as they arrive. A signal ends the wait, never a put. What
`ingest` does with lines that no message can hold: it stops, or goes on without them."""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import click

from rocketstore.cli.output import count_text
from rocketstore.cli.signals import StopSignals

__all__ = ["BadLines", "LineSource", "LineTooLongError", "LongPart"]

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


STOP: Final = "stop"
SKIP: Final = "skip"
#: Lines that standard error names, at most; a summary counts the others.
NAMED_MOST: Final = 100


class LineTooLongError(ValueError):
    """A line that no message can hold."""


class BadLines:
    """Takes such lines part by part, in the order of the input, as `--bad-lines` says.

    A file gets them as they are, each with a newline, after what it holds already. It is on the
    disk when `close` returns, without the parts of a line that did not come whole.
    """

    def __init__(self, choice: str, input_descriptor: int) -> None:
        self.count = 0
        self._choice = choice
        self._path = None if choice in (STOP, SKIP) else choice
        self._descriptor = -1
        # Of the line that is coming: its bytes up to now, and where the file ended before it.
        self._size_bytes = 0
        self._begin: int | None = None
        if self._path is not None:
            self._open(self._path, input_descriptor)

    def take(self, number: int, part: LongPart, why: str) -> None:
        """The next part of line `number`.

        Raises:
            LineTooLongError: the run shall stop. OSError: the file takes no more.
        """
        self._size_bytes += len(part.bytes)
        size = f"{'' if part.ends else 'more than '}{self._size_bytes} bytes"
        if self._choice == STOP:
            raise LineTooLongError(f"{size}: {why}; --bad-lines skip, or a file, goes on after it")
        if self._path is not None:
            self._write(self._path, part)
        if not part.ends:
            return
        self.count += 1
        self._size_bytes, self._begin = 0, None
        if self.count <= NAMED_MOST:
            done = "left out" if self._path is None else f"it is in {self._path}"
            click.echo(f"rocketstore: line {number}: {size}: {why}; {done}", err=True)

    def close(self) -> None:
        """Makes the file durable; a second call does nothing. Raises OSError."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor == -1:
            return
        try:
            if self._begin is not None:
                os.ftruncate(descriptor, self._begin)
            os.fsync(descriptor)
        except OSError as error:
            error.filename = self._path
            raise
        finally:
            os.close(descriptor)

    def summary(self) -> str:
        """For the last line of output; empty if there were none."""
        where = "left out" if self._path is None else f"put into {self._path}"
        return f", {where} {count_text(self.count, 'line')}" if self.count else ""

    def _open(self, path: str, input_descriptor: int) -> None:
        # Not to wait for the reader of a named pipe, which is refused.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            self._descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            raise click.BadParameter(f"--bad-lines {path}: {error.strerror}") from error
        found = os.fstat(self._descriptor)
        problem = ""
        if not stat.S_ISREG(found.st_mode):
            problem = "no regular file"
        elif os.path.sameopenfile(self._descriptor, input_descriptor):
            problem = "the input itself"
        if problem:
            self.close_unused()
            raise click.BadParameter(f"--bad-lines {path}: {problem}")
        if found.st_size and os.pread(self._descriptor, 1, found.st_size - 1) != b"\n":
            os.write(self._descriptor, b"\n")  # after a part that a killed run left

    def close_unused(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1

    def _write(self, path: str, part: LongPart) -> None:
        if self._begin is None:
            self._begin = os.fstat(self._descriptor).st_size
        left = memoryview(part.bytes + b"\n" if part.ends else part.bytes)
        try:
            while left:
                written = os.write(self._descriptor, left)
                if not written:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                left = left[written:]
        except OSError as error:
            error.filename = path
            raise
