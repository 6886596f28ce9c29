"""Standard input, output and error as a shell may leave them: closed, or without a reader."""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "NoReaderError",
    "as_text",
    "check_reader",
    "mute",
    "name_output",
    "open_closed",
    "printable",
    "readers",
]


class NoReaderError(Exception):
    """The reader of a standard stream has gone. It is no OSError, which click would report as a
    failure."""


class _Output(io.BufferedWriter):
    """Standard output whose errors name it: the disk of a store may be full as well. After an
    error, buffered bytes go to /dev/null and raise nothing again.

    It is no raw stream: a signal between its write and its return would write the bytes twice."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self._name(error)
            raise

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._name(error)
            raise

    def _name(self, error: OSError) -> None:
        error.filename = "standard output"
        _lead_nowhere(self.fileno())


def name_output() -> None:
    """Errors of standard output name it, and characters that it cannot encode are escaped."""
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper) and old is sys.__stdout__:
        sys.stdout = io.TextIOWrapper(
            _Output(io.FileIO(old.fileno(), "w", closefd=False)),
            encoding=old.encoding,
            errors="rocketstore.output",
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )


def open_closed() -> None:
    """Opens /dev/null for each standard stream that is closed. A store's file would get its number,
    and all that is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number: that of the stream, since those before it are open by now.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def printable(text: str) -> str:
    """`text` as a part of a line: what could steer a terminal or end the line is escaped, as
    `\\x1b`."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in as_text(text)
    )


def as_text(argument: str) -> str:
    """An argument of the command line as text. In a locale that is not UTF-8 Python makes a lone
    surrogate of each byte that is not ASCII; what is no UTF-8 stays so."""
    try:
        return argument.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # other surrogates, that no bytes decode to
        return argument


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Bytes of a name go out as they came in; other characters are escaped."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    sign = error.object[error.start]
    if "\udc80" <= sign <= "\udcff":
        return bytes([ord(sign) - 0xDC00]), error.start + 1
    return codecs.backslashreplace_errors(error)


codecs.register_error("rocketstore.output", _escape)


@contextlib.contextmanager
def readers() -> Iterator[None]:
    """Raises NoReaderError instead of BrokenPipeError, also for what is still buffered at the
    end."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise NoReaderError from None


def check_reader() -> None:
    """Called by a command that waits: a write would say so only once there is something to write.

    Raises:
        BrokenPipeError: nobody reads standard output any more.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), "standard output")


def mute() -> None:
    """Drops what is still buffered for a reader that has gone, so that it does not raise again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _lead_nowhere(stream.fileno())


def _lead_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
