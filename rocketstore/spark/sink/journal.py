"""What the sink has committed: one small file for each writer, and one for the commit under way.

Under `<store>/rocketstore/sink/`:

    pending.json          the commit whose staged frames are being appended; its rename is the point of
                          no return: the next process that opens the sink finishes the commit
    writers/<name>.json   how far each writer has come: its last version, and the last commits
    staging/<run>/        frames of tasks, until they are in the log
    journal.lock          held while the first two are read or written, which only the process may do
                          that holds the store's lock
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rocketstore.archive import sync_path
from rocketstore.spark.errors import SparkFaceError
from rocketstore.values import LIMITS, parse_json

__all__ = [
    "REUSE",
    "TOPICS_MAX",
    "Commit",
    "Journal",
    "Staged",
    "check_reused",
    "coded_damage",
    "committed",
    "facts_of",
    "file_name",
    "is_pending",
    "needed_files",
    "read_state",
    "reused",
    "sink_directory",
    "staged_files",
    "whole_number",
    "write_durably",
]

logger = logging.getLogger(__name__)

#: Commits of each writer that stay in its file; only the last one decides anything.
REMEMBERED = 100
#: Size of a state file of the sink, bytes; one that names the frames of 100,000 tasks has less.
STATE_BYTES_MAX = 256 << 20
#: Ends the names of files that hold staged frames. The sink reads and removes no other file that a
#: state file names: any program that can write to the store's directory can write to it.
FRAMES: Final = ".frames"
#: Size of a chunk of frames, bytes: it is read into memory as a whole. The sink makes some MiB.
CHUNK_BYTES_MAX: Final = 1 << 30
#: Fields that are noted of each commit.
NOTED = ("version", "begin", "end", "rows")

#: What happens to a version that was committed with other rows: an error; nothing; or an error only
#: where it went to other topics, since a micro-batch that is tried again may have other rows.
REUSE: Final = ("fail", "skip", "retry")
#: Topics that are noted of a commit; where it has more, none is.
TOPICS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Staged:
    """One file of frames: chunks of (bytes, frames, CRC-32), back to back."""

    path: str
    rows: int
    chunks: tuple[tuple[int, int, int], ...]
    #: No body has more bytes; 0: not known.
    largest_body: int = 0
    #: Of its messages; empty: not known.
    topics: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(chunk[0] for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of one writer: the staged files, in the order in which they are appended."""

    writer: str
    version: int
    #: Physical offset at which the log ended, durably, before the frames that follow.
    begin: int
    files: tuple[Staged, ...] = field(default=())
    #: Count of frames that are in the log below `begin`: a resumed commit appends those after them.
    present: int = 0
    #: Others put messages while the frames are appended: these may lie between them.
    mixed: bool = False

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def file_name(writer: str) -> str:
    """The name of a writer, which may be any text, in names of files."""
    return hashlib.sha256(writer.encode()).hexdigest()[:32]


def sink_directory(path: str | os.PathLike[str]) -> Path:
    return Path(path) / "rocketstore" / "sink"


def staged_files(found: list[dict[str, Any]]) -> tuple[Staged, ...]:
    """What `dataclasses.asdict` has made of them.

    Raises:
        ValueError, KeyError, TypeError: these are none.
    """
    return tuple(
        Staged(
            _frames_path(f["path"]),
            whole_number(f["rows"]),
            tuple(_chunk(*chunk) for chunk in f["chunks"]),
            whole_number(f.get("largest_body", 0)),
            tuple(str(topic) for topic in f.get("topics", ())),
        )
        for f in found
    )


def whole_number(value: object) -> int:
    """A count, size or offset of a state file. ValueError for anything else."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no number from 0 to 2**63 - 1")
    return value


def _chunk(size: object, frames: object, checksum: object) -> tuple[int, int, int]:
    if whole_number(frames) > whole_number(size):
        raise ValueError(f"{frames} frames in {size} bytes")
    if whole_number(size) > CHUNK_BYTES_MAX:
        raise ValueError(f"a chunk of {size} bytes: at most {CHUNK_BYTES_MAX}")
    return whole_number(size), whole_number(frames), whole_number(checksum)


def _frames_path(path: object) -> str:
    if not isinstance(path, str) or not path.endswith(FRAMES) or "\0" in path:
        raise ValueError(f"{path!r} is no file of staged frames (*{FRAMES})")
    return path


def write_durably(path: Path, content: dict[str, Any]) -> None:
    """Replaces a file: after a crash it is the old one or the new one, whole. Follows no link in
    its place."""
    temporary = path.with_suffix(".tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()  # a crash left it
    with open(temporary, "x", encoding="utf-8") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_path(path.parent)


def read_state(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The content of a state file of the sink; None where there is none.

    Raises:
        ValueError, KeyError, TypeError: it is no such file, or of another format.
        OSError: it cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > STATE_BYTES_MAX:
            raise ValueError(f"no plain file of at most {STATE_BYTES_MAX} bytes")
        text = file.read(STATE_BYTES_MAX)
    found: Any = parse_json(text, LIMITS["spark"])
    if found["format"] != 1:
        raise ValueError("not of format 1")
    return dict(found)


def is_pending(path: str | os.PathLike[str], files: Sequence[Staged]) -> bool:
    """Whether the commit under way needs one of these files; for callers without the lock."""
    needed = needed_files(path)
    return needed is None or not needed.isdisjoint(file.path for file in files)


def needed_files(path: str | os.PathLike[str]) -> set[str] | None:
    """Staged files of the commit under way; None: they are not known. For callers without the
    lock."""
    if not (sink_directory(path) / "pending.json").exists():
        return set()
    try:
        begun = Journal(path).pending()
    except SparkFaceError:
        return None
    return set() if begun is None else {file.path for file in begun.files}


def committed(path: str | os.PathLike[str], writer: str) -> dict[int, int]:
    """Rows by version of the last commits of a writer; for callers without the lock."""
    if not (sink_directory(path) / "writers").is_dir():
        return {}
    return {commit["version"]: commit["rows"] for commit in Journal(path).commits(writer)}


class Journal:
    """The files above, for one store whose lock is held."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = sink_directory(path)
        self._writers = self._root / "writers"
        self._pending = self._root / "pending.json"
        if not self._writers.is_dir():
            self._writers.mkdir(parents=True)
            sync_path(self._root)
            sync_path(self._root.parent)

    def pending(self) -> Commit | None:
        found = self._read(self._pending)
        if found is None:
            return None
        with coded_damage(self._pending):
            return Commit(
                str(found["writer"]),
                int(found["version"]),
                whole_number(found["begin"]),
                staged_files(found["files"]),
                whole_number(found["present"]),
                bool(found.get("mixed", False)),
            )

    def begin(self, commit: Commit) -> None:
        """After this the commit will be finished, whichever process dies."""
        write_durably(self._pending, {"format": 1, **asdict(commit)})

    def note(self, commit: Commit, end: int, facts: Mapping[str, Any]) -> None:
        """Everything of the commit is in the log, durably, below `end`. `facts`: more of its
        rows."""
        if commit.version > self.last_version(commit.writer):
            commits = self._noted(commit.writer)
            commits.append(
                {
                    "version": commit.version,
                    "begin": commit.begin,
                    "end": end,
                    "rows": commit.rows,
                    **facts,
                }
            )
            content = {"format": 1, "writer": commit.writer, "commits": commits[-REMEMBERED:]}
            write_durably(self._file(commit.writer), content)

    def clear(self) -> None:
        """Says that no commit is under way."""
        self._pending.unlink()
        sync_path(self._root)

    def commits(self, writer: str) -> list[dict[str, int]]:
        """The last commits of a writer, oldest first: version, begin, end, rows."""
        return [{name: commit[name] for name in NOTED} for commit in self._noted(writer)]

    def noted(self, writer: str, version: int) -> dict[str, Any] | None:
        """All that is known of one of the last commits of a writer."""
        return next((one for one in self._noted(writer) if one["version"] == version), None)

    def _noted(self, writer: str) -> list[dict[str, Any]]:
        file = self._file(writer)
        found = self._read(file)
        with coded_damage(file):
            commits = [] if found is None else found["commits"]
            for commit in commits:
                if type(commit["version"]) is not int:
                    raise ValueError(f"{commit['version']!r} is no version")
                for name in NOTED[1:]:
                    whole_number(commit[name])
            return [dict(commit) for commit in commits]

    def last_version(self, writer: str) -> int:
        commits = self.commits(writer)
        return commits[-1]["version"] if commits else -1

    def _file(self, writer: str) -> Path:
        return self._writers / f"{file_name(writer)}.json"

    def _read(self, path: Path) -> dict[str, Any] | None:
        with coded_damage(path):
            return read_state(path)


@contextlib.contextmanager
def coded_damage(path: str | Path, so: str = "; nothing was appended") -> Iterator[None]:
    """What is not as the sink writes it becomes an error with a code. `so`: what follows from
    it."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SparkFaceError("RS_JOURNAL_DAMAGED", f"{path}: {error!r}{so}") from error


# ---- a version that is written again ----

# A second write under the name and number of a first one is not written. That is right for the same rows, tried
# again. It loses rows where two writes have one name by mistake, as two topics of one micro-batch.


def facts_of(files: Sequence[Staged]) -> dict[str, Any]:
    """What the journal notes of the rows of a commit, besides their count."""
    topics = sorted({topic for file in files for topic in file.topics})
    known = all(file.topics for file in files) and len(topics) <= TOPICS_MAX
    return {
        "bytes": sum(file.size for file in files),
        "topics": topics if known else None,
    }


def check_reused(
    writer: str, version: int, noted: Mapping[str, Any], files: Sequence[Staged], reuse: str
) -> None:
    """Compares what is to be written with what the journal notes of the same version.

    Raises:
        SparkFaceError: RS_VERSION_REUSED, by `reuse`, one of REUSE.
    """
    now = {"rows": sum(file.rows for file in files), **facts_of(files)}
    other = {
        name: (noted[name], value)
        for name, value in now.items()
        if value is not None and noted.get(name) is not None and noted[name] != value
    }
    if not other or reuse == "skip":
        return
    differ = ", ".join(f"{name} {was}, now {value}" for name, (was, value) in other.items())
    text = f"version {version} of {writer} was written with {differ}"
    was, value = other.get("topics", ((), ()))
    if reuse == "retry" and not ("topics" in other and set(was).isdisjoint(value)):
        logger.warning("%s: nothing is written of it again", text)
        return
    raise reused(writer, version, differ)


def reused(writer: str, version: int, differ: str) -> SparkFaceError:
    """The error; `differ` says what was written, and what comes now."""
    return SparkFaceError(
        "RS_VERSION_REUSED",
        f"version {version} of {writer} was written with {differ}; nothing is written: "
        "give each write a name of its own, txnAppId='job-topic', or a larger txnVersion; "
        "reusedVersion=skip leaves out whatever comes under a version that was written",
    )
