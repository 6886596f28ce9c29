"""What the library advises a program to do, in words for the command line."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketstore.tools.report import LOST_FILES

if TYPE_CHECKING:
    from rocketstore.tools import VerifyReport

__all__ = ["ADVICE", "COMMIT_LOG_DIR", "in_commands", "remedy"]

#: What is made from the log alone, as `rebuild` does.
_DERIVED: Final = {"consumequeue", "index"}

COMMIT_LOG_DIR: Final = "--commit-log-dir"

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
    "commit_log_file_size_bytes": "--segment-bytes",
    "name others, or give failOnDataLoss=false": "name others",
    ", and createStore=false; ": ", and --no-create; ",
    "give the option lockTimeout more seconds": "try again later",
    " (failOnDataLoss=false: go on behind it)": "; try again",
    "; failOnDataLoss=false skips it": "; verify and repair are for it",
    "; decompress=false leaves it as it is": "; export and replay leave it so with --as-stored",
    "; or decompress=false": "; or --as-stored of export and replay",
    "or mode='append'": "or --append",
    "; badRows=drop leaves such rows out, divert keeps them": (
        "; --bad-rows drop of import leaves such rows out, divert keeps them"
    ),
    "give the option shards to add some": "import --shards adds some",
    "each message twice; give to_topic": "each message twice; give --to-topic",
    "replay them with to_topic": "replay them with --to-topic",
    "name them in topics": "name each with --topic",
    "of each with the argument topic": "of each with --topic",
}


def in_commands(text: str) -> str:
    """`text` with advice that commands can follow: they have no modes and no arguments by name."""
    for said, meant in ADVICE.items():
        text = text.replace(said, meant)
    return text


def remedy(report: VerifyReport, options: Mapping[str, object]) -> str:
    """The command that mends what `verify` found, or "": of files that no command makes. `options`: those that were
    given; where the log lies, `rebuild` cannot be told."""
    root = Path(os.path.abspath(report.path))  # as the faults name their files
    files = [Path(fault.file) for fault in report.faults]
    # A log may lie elsewhere, and has files of other names than the rest.
    parts = {
        file.relative_to(root).parts[0] if file.is_relative_to(root) else "commitlog"
        for file in files
    }
    given = {name: shlex.quote(str(value)) for name, value in options.items()}
    store = " ".join([shlex.quote(report.path), *map(" ".join, given.items())])
    when = "" if report.writer == "none" else "once nothing has the store open: "
    if "commitlog" in parts:  # with it goes what queues and index say of lost records
        if any(text in fault.reason for fault in report.faults for text in LOST_FILES):
            give_up = f"rocketstore repair --fill-missing {store} gives up what is lost for good"
            return f"{when}restore the files that are missing or too short, or {give_up}"
        crashed = report.writer == "none" and (root / "abort").exists()
        if crashed and COMMIT_LOG_DIR not in given:
            return f"rocketstore recover {store} is first, after a crash; then verify again"
        again = "; then verify again" if parts & _DERIVED else ""
        return f"{when}rocketstore repair {store} mends the log, --dry-run says how{again}"
    if parts & _DERIVED and COMMIT_LOG_DIR not in given:
        return f"{when}rocketstore rebuild {store} makes queues and index anew from the log"
    return ""
