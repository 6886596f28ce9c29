"""Standard input, output and error as a shell may leave them: closed, or without a reader."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from rich.console import Console

__all__ = ["NoReaderError", "StandardConsole", "mute", "open_closed", "readers"]


class NoReaderError(Exception):
    """The reader of a standard stream has gone. No OSError: click would make a failure of one."""


class StandardConsole(Console):
    """A console that leaves it to the command what a reader that has gone means, and that shows names as
    they are: `[bold]` and `:key:` may be parts of one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def open_closed() -> None:
    """Streams that were closed lead nowhere: a store's file would get their numbers, and what somebody
    prints."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number: that of the stream, since those before it are open by now.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


@contextlib.contextmanager
def readers() -> Iterator[None]:
    """Raises NoReaderError when a reader has gone."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise NoReaderError from None


def mute() -> None:
    """Nothing is written any more; what is still buffered must not raise again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
