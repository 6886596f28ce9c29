"""What `ingest` does with lines that no message can hold: it stops, or goes on without them."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

import click

from rocketstore.cli.output import count_text
from rocketstore.cli.streams.lines import LongPart

__all__ = ["BadLines", "LineTooLongError"]

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
