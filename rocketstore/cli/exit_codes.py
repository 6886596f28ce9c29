"""Exit codes, and which error means which."""

from __future__ import annotations

from typing import Final

from rocketstore.cli.hints import in_commands
from rocketstore.cli.standard_streams import printable
from rocketstore.errors import (
    CorruptRecordError,
    DiskFullError,
    MessageNotFoundError,
    MissingSegmentsError,
    RocketStoreError,
    StoreLockedError,
)

__all__ = [
    "DAMAGED",
    "FAILED",
    "INTERRUPTED",
    "LOCKED",
    "NO_READER",
    "OK",
    "TERMINATED",
    "exit_code",
    "in_one_line",
]

OK: Final = 0
FAILED: Final = 1
#: click's own code for wrong arguments.
USAGE: Final = 2
DAMAGED: Final = 3
LOCKED: Final = 4
#: 128 + signal number, as shells count: SIGINT, SIGPIPE, SIGTERM.
INTERRUPTED: Final = 130
NO_READER: Final = 141
TERMINATED: Final = 143


def exit_code(error: BaseException) -> int:
    """The exit code that says what kind of failure `error` is."""
    if isinstance(error, StoreLockedError):
        return LOCKED
    if isinstance(error, CorruptRecordError | MissingSegmentsError):
        return DAMAGED
    return FAILED


def in_one_line(error: BaseException) -> str:
    """What went wrong, for a person, without a traceback. Names in it may hold anything."""
    # Other notes are for programs.
    commands = [n for n in getattr(error, "__notes__", ()) if n.startswith("'rocketstore ")]
    text = "; ".join([_text_of(error), *commands])
    return printable(in_commands(text, spark="[RS_" in text))


def _text_of(error: BaseException) -> str:
    full = isinstance(error, DiskFullError)  # what it is caused by says the same
    if isinstance(error, OSError) and (full or not isinstance(error, RocketStoreError)):
        reason = error.strerror or str(error) or type(error).__name__
        return f"{error.filename}: {reason}" if error.filename else reason
    text = " ".join(str(error).split()) or type(error).__name__
    # What is not there says why itself; its cause would say it again.
    missing = isinstance(error, MessageNotFoundError | ImportError)
    cause = None if missing else error.__cause__
    why = "" if cause is None else " ".join(str(cause).split())
    return f"{text} (because: {why})" if why and why not in text else text
