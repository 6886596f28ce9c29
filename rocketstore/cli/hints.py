"""Advice for the command line: what the library advises a program to do, in words for commands.

Errors take their advice from a table (`rocketstore.errors.HINTS`,
`rocketstore.spark.errors.HINTS`). The tables here have the same codes. Spark keeps nothing of an
error but its text, so advice is found in texts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketstore.errors import HINTS

if TYPE_CHECKING:
    from rocketstore.tools import VerifyReport

__all__ = ["COMMIT_LOG_DIR", "LIBRARY", "SPARK", "in_commands", "remedy"]

#: Parts of a store that `rebuild` makes from the log alone.
_DERIVED: Final = {"consumequeue", "index"}

COMMIT_LOG_DIR: Final = "--commit-log-dir"

_READ: Final = "tail, get, query and stat read it"

#: `rocketstore.errors.HINTS` for commands, by the same codes.
LIBRARY: Final = {
    "close_or_reader": f"close it there; {_READ} meanwhile",
    "create": "ingest would create one",
    "directories": "if the log has several directories, --commit-log-dir has to name all of them",
    "finish_removal": "ingest would finish it and make a new store",
    "force": (
        "or go on without by recover --force, or, where files between others are lost for good, "
        "by repair --fill-missing"
    ),
    "reader": _READ,
    "reader_meanwhile": f"{_READ} meanwhile",
    "reader_there": _READ,
}
#: `rocketstore.spark.errors.HINTS` for commands, by the same codes.
SPARK: Final = {
    "add_shards": "import --shards adds some",
    "append": "or --append",
    "argument_topic": "of each with --topic",
    "bad_rows": "--bad-rows drop of import leaves such rows out, divert keeps them",
    "create_store": "and --no-create",
    "decompress": "export and replay leave it so with --as-stored",
    "data_loss": "; try again",
    "lock_timeout": "try again later",
    "name_topics": "name each with --topic",
    "no_codec": "or --as-stored of export and replay",
    "skip_damage": "verify and repair are for it",
    "to_topic": "give --to-topic",
    "replay_to_topic": "replay them with --to-topic",
    "topics": "name others",
}
#: Options of `rocketstore.open` that commands have, as errors name them.
OPTIONS: Final = {"commit_log_file_size_bytes": "--segment-bytes"}


def in_commands(text: str, *, spark: bool = False) -> str:
    """`text` with advice that commands can follow: they have no modes and no arguments by name.

    Args:
        spark: whether the text is of the Spark face, which is imported only then.
    """
    for code, words in LIBRARY.items():
        text = text.replace(HINTS[code], words)
    for option, flag in OPTIONS.items():
        text = text.replace(option, flag)
    if spark:
        from rocketstore.spark.errors import HINTS as SPARK_HINTS

        for code, words in SPARK.items():
            text = text.replace(SPARK_HINTS[code], words)
    return text


def remedy(report: VerifyReport, options: Mapping[str, object]) -> str:
    """The command that mends what `verify` found, or "" for files that no command makes.

    `options`: those that the caller gave, by flag. `rebuild` has no option for where the log lies.
    """
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
        if any(fault.kind == "lost_file" for fault in report.faults):
            give_up = f"rocketstore repair --fill-missing {store} gives up what is lost for good"
            return f"{when}restore the files that are missing or too short, or {give_up}"
        crashed = report.writer == "none" and (root / "abort").exists()
        if crashed and COMMIT_LOG_DIR not in given:
            return f"rocketstore recover {store} is first, after a crash; then verify again"
        again = "; then verify again" if parts & _DERIVED else ""
        return f"{when}rocketstore repair {store} mends the log, --dry-run says how{again}"
    if parts & _DERIVED and COMMIT_LOG_DIR not in given:
        return f"{when}rocketstore rebuild {store} makes queues and index again from the log"
    return ""
