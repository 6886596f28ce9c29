"""Advice for the command line: what the library advises a program to do, in words for commands.

Errors take their advice from a table (`rocketstore.errors.HINTS`, and
`rocketstore.spark.errors.HINTS`, which has all of those, too). `WORDS` has the same codes. Spark
keeps nothing of an error but its text, so advice is found in texts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rocketstore.errors import HINTS

if TYPE_CHECKING:
    from rocketstore.tools import FaultKind, VerifyReport

__all__ = ["COMMIT_LOG_DIR", "WORDS", "in_commands", "remedy"]

COMMIT_LOG_DIR: Final = "--commit-log-dir"

_READ: Final = "tail, get, query and stat read it"

#: All advice for commands, by its code.
WORDS: Final = {
    "close_or_reader": f"close it there; {_READ} meanwhile",
    "close_or_share": f"close it there; {_READ} meanwhile",
    "create": "ingest would create one",
    "directories": "if the log has several directories, --commit-log-dir has to name all of them",
    "finish_removal": "ingest would finish it and make a new store",
    "force": (
        "or go on without by recover --force, or, where files between others are lost for good, "
        "by repair --fill-missing"
    ),
    "force_reader": "tail, get, query and stat read what is left",
    "reader": _READ,
    "reader_meanwhile": f"{_READ} meanwhile",
    "reader_there": _READ,
    "stale_crc": (
        "if RocketMQ put the record again with the checksum of the old one, --allow-stale-crc "
        "lets it pass"
    ),
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
    table = HINTS
    if spark:
        from rocketstore.spark.errors import HINTS as table
    for code, advice in table.items():
        text = text.replace(advice, WORDS[code])
    for option, flag in OPTIONS.items():
        text = text.replace(option, flag)
    return text


def remedy(report: VerifyReport, options: Mapping[str, object]) -> list[str]:
    """What repairs the faults that `verify` found: a line for those that no command repairs, then
    the command that comes first. None without a fault.

    `options`: those that the caller gave, by flag.
    """
    given = {name: shlex.quote(str(value)) for name, value in options.items()}
    store = " ".join([shlex.quote(report.path), *map(" ".join, given.items())])
    when = "" if report.writer == "none" else "once nothing has the store open: "
    found = {(fault.kind, fault.code) for fault in report.faults}
    lines = [words for one, words in _BY_HAND.items() if one in found]
    command = _command(report, found, store)
    again = "; then verify again" if len({kind for kind, _ in found}) > 1 or lines else ""
    if command:
        lines.append(f"{when}{command}{again}")
    return lines


#: What no command repairs, by kind and code.
_BY_HAND: Final[dict[tuple[FaultKind, str], str]] = {
    (
        "log",
        "record-crc",
    ): "compare each record whose own checksum does not hold with a copy of the "
    "store: RocketMQ with forceVerifyPropCRC would cut the log there. "
    "If it put them again with the checksum of an old record, --allow-stale-crc lets them pass",
    ("log", "name"): "give each file of the log the name that its records say, where no file with "
    "these records has it, and move all other such files out of the store",
    ("log", "twice"): "no command gives a message a place whose queue offset an earlier one has: "
    "read it with get, by the start of its file and its place there, and put it again",
    ("derived", "in-the-way"): "move what lies in place of queues or their files out of the store",
    ("broker", "in-the-way"): "move what lies in place of files of the log out of the store",
    ("broker", "stray"): "move what RocketMQ does not know out of the store",
    ("broker", "side-file"): "restore the files below config/ that RocketMQ cannot read",
    ("config", "side-file"): "restore the files below config/ from a copy, or remove those whose "
    "content is given up",
}


def _command(report: VerifyReport, found: set[tuple[FaultKind, str]], store: str) -> str:
    """The first command to run: each kind hides or causes those after it."""
    none = (*NO_COMMAND, "order") if ("log", "twice") in found else NO_COMMAND
    kinds = {kind for kind, code in found if code not in none}
    if ("log", "name") in found:  # nothing is given up while it lies under another name
        return ""
    if report.role in ("replica", "unknown") and kinds & NOT_IN_COPIES:
        promote = f"; or rocketstore promote {store} makes it the master, which commands mend"
        return OF_COPY + promote * (report.role == "replica" and "lost" not in kinds)
    if ("broker", "vanished") in found:
        return f"rocketstore recover {store} links back the files that vanished from the log"
    if "lost" in kinds:
        return f"{_RESTORE}rocketstore {_give_up(found, store)} gives up what is lost for good"
    if ("broker", "length") in found or (report.counts.cut_bytes and "log" in kinds):
        return f"rocketstore recover {store} is first"
    if "log" in kinds:  # with it goes what queues and index say of lost records
        return f"rocketstore repair {store} mends the log, --dry-run says how"
    if ("log", "record-crc") in found:
        return ""  # the old units may be the last that know what such a record was
    if "derived" in kinds:
        return f"rocketstore rebuild {store} makes queues and index again from the log"
    if "offsets" in kinds:
        return (
            f"rocketstore recover {store} takes the offsets as they are, but sets one that is "
            "beyond its queue back to its end, and keeps the old file in rocketstore/quarantine"
        )
    return ""


#: Of a copy; what its log lacks makes a promotion fail.
OF_COPY: Final = (
    "only its master changes this copy: follow it, which recovers the copy, or make a new one in "
    "another directory"
)
#: Kinds of faults whose commands no copy takes.
NOT_IN_COPIES: Final[set[FaultKind]] = {"log", "lost", "broker", "offsets"}
#: Codes of faults that no command repairs.
NO_COMMAND: Final = ("record-crc", "in-the-way", "twice", "name", "stray", "side-file", "role")
_RESTORE: Final = "restore what the log lacks from a copy, or "


def _give_up(found: set[tuple[FaultKind, str]], store: str) -> str:
    """Files between others take `repair`, whole files at an end `--force`."""
    force = " --force" if {("lost", "begin"), ("lost", "end")} & found else ""
    if ("lost", "missing") in found:
        return f"repair --fill-missing{force} {store}"
    return f"recover{force} {store}"
