"""What the library advises a program to do, in words for the command line."""

from __future__ import annotations

from typing import Final

__all__ = ["ADVICE", "in_commands"]

_READ: Final = "tail, get, query and stat read it"

#: A text of the library, and what stands for it here.
ADVICE: Final = {
    "or open with force=True to go on without": (
        "or go on without by recover --force, or, where files between others are lost for good, "
        "by repair --fill-missing"
    ),
    ", or open with mode='r'": f"; {_READ} meanwhile",
    "; mode='r' reads it meanwhile": f"; {_READ} meanwhile",
    "; mode='r' reads a store there": f"; {_READ}",
    "open it with mode='r'": _READ,
    "; mode='rw' would finish it and make a new store": (
        "; ingest would finish it and make a new store"
    ),
    "commit_log_dir has to name": "--commit-log-dir has to name",
}


def in_commands(text: str) -> str:
    """`text` with advice that commands can follow: they have no modes and no arguments by name."""
    for said, meant in ADVICE.items():
        text = text.replace(said, meant)
    return text
