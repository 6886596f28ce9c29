"""Commits, and offsets of groups, that are handed to the process which has the store open, and
their outcome.

Under `<store>/rocketstore/sink/inbox/`, for each request:

    <id>.json    handed in. The first process that renames or removes it decides: the owner takes it, or
                 the asker withdraws it, never both
    <id>.taken   the owner is at work on it, and touches it now and then; it stays when the owner dies
    <id>.done    the outcome, for the asker, which removes it

The journal alone decides whether frames are in the log, and an offset of a group never goes back.
So a request is carried out once, also when it is taken twice, or when its asker finishes it because
the owner is gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocketstore.archive import sync_path
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.journal import (
    Staged,
    coded_damage,
    read_state,
    sink_directory,
    staged_files,
    whole_number,
    write_durably,
)

__all__ = [
    "Asked",
    "AskedCommit",
    "AskedOffsets",
    "Request",
    "give_answer",
    "inbox_directory",
    "load_asked",
    "take",
    "waiting",
    "withdraw_files",
]


def inbox_directory(path: str) -> Path:
    return sink_directory(path) / "inbox"


# ---- what is asked ----


@dataclass(frozen=True, slots=True)
class AskedCommit:
    """Staged files that are to be appended."""

    writer: str
    version: int
    files: Sequence[Staged]
    #: An asker of release 0.1 does not send it: then `serve` compares nothing.
    reuse: str = "skip"


@dataclass(frozen=True, slots=True)
class AskedOffsets:
    """Next queue offsets, by topic and queue id, that are to be stored for a group."""

    group: str
    offsets: Mapping[str, Mapping[int, int]]


Asked = AskedCommit | AskedOffsets


def load_asked(file: Path) -> Asked:
    """The content of a request. Raises SparkFaceError: RS_JOURNAL_DAMAGED."""
    with coded_damage(file):
        found = _read(file)
        if "group" in found:
            offsets = {
                str(topic): {
                    int(queue_id): whole_number(offset) for queue_id, offset in row.items()
                }
                for topic, row in found["offsets"].items()
            }
            return AskedOffsets(str(found["group"]), offsets)
        return AskedCommit(
            str(found["writer"]),
            int(found["version"]),
            staged_files(found["files"]),
            str(found.get("reuse", "skip")),
        )


# ---- the asker ----


class Request:
    """What may be handed in once; used by one thread."""

    def __init__(self, path: str, asked: Asked) -> None:
        directory = inbox_directory(path)
        name = uuid.uuid4().hex
        self._waiting = directory / f"{name}.json"
        self._taken = directory / f"{name}.taken"
        self._done = directory / f"{name}.done"
        self._content = {"format": 1, **asdict(asked)}
        #: Whether it was ever handed in.
        self.handed_in = False

    def hand_in(self) -> None:
        """Idempotent."""
        if not self.handed_in:
            self._waiting.parent.mkdir(parents=True, exist_ok=True)
            write_durably(self._waiting, self._content)
            self.handed_in = True

    def withdraw(self) -> bool:
        """Takes it back; False when an owner has taken it before, dead or alive."""
        if self.handed_in:
            try:
                self._waiting.unlink()
            except FileNotFoundError:
                return False
            sync_path(self._waiting.parent)
            self.handed_in = False
        return True

    @property
    def touched_ns(self) -> int:
        """When the owner last was at work on it, by the clock of the files; 0: not taken, or
        done."""
        try:
            return self._taken.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    @property
    def answered(self) -> bool:
        return self._done.exists()

    def answer(self) -> bool:
        """What the owner said: whether it appended the frames, or found them committed before.

        Raises:
            SparkFaceError: it could not; with the code of what went wrong there.
        """
        try:
            with coded_damage(self._done, so=""):
                found, text = _read(self._done), ""
                if "code" in found:
                    text = f"{found['text']} (said by process {found['pid']})"
                appended = bool(text or found["appended"])
        finally:
            self.forget()
        if text:
            raise SparkFaceError(str(found["code"]), text)
        return appended

    def forget(self) -> None:
        """Removes all files of the request. For a process that holds the store, or after the
        answer."""
        if self.handed_in:
            for file in (self._waiting, self._taken, self._done):
                with contextlib.suppress(FileNotFoundError):
                    file.unlink()
            self.handed_in = False


# ---- the owner ----


def _read(file: Path) -> dict[str, Any]:
    found = read_state(file)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(file))
    return found


def waiting(path: str) -> list[Path]:
    """Requests, oldest first: those that a dead owner took, and those that no owner took."""
    found = []
    with contextlib.suppress(FileNotFoundError), os.scandir(inbox_directory(path)) as entries:
        for entry in entries:
            if entry.name.endswith((".json", ".taken")):
                with contextlib.suppress(FileNotFoundError):
                    found.append((entry.stat().st_mtime_ns, entry.path))
    return [Path(name) for _, name in sorted(found)]


def take(file: Path) -> Path | None:
    """Takes a request, so that its asker cannot withdraw it; None when it was withdrawn before."""
    taken = file.with_suffix(".taken")
    try:
        os.rename(file, taken)
    except FileNotFoundError:
        return None
    return taken


def give_answer(taken: Path, outcome: dict[str, Any]) -> None:
    write_durably(taken.with_suffix(".done"), {"format": 1, "pid": os.getpid(), **outcome})


# ---- giving up ----


def withdraw_files(path: str, files: Sequence[Staged]) -> bool:
    """Withdraws what was handed in with one of these files; False when an owner has taken it."""
    names = {file.path for file in files}
    free = True
    for request in waiting(path):
        try:
            asked = load_asked(request)
        except (FileNotFoundError, SparkFaceError):
            continue
        if isinstance(asked, AskedOffsets) or names.isdisjoint(file.path for file in asked.files):
            continue
        try:
            if request.suffix == ".taken":
                raise FileNotFoundError
            request.unlink()
        except FileNotFoundError:
            free = False
    return free
