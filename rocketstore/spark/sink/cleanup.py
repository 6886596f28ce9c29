"""Removes staged files of commits that are done, given up, or were never made.

A file that cannot be removed, as one of another user, stays: no commit fails for that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.bad_rows import STAGED
from rocketstore.spark.sink.journal import (
    Staged,
    is_pending,
    needed_files,
    read_state,
    sink_directory,
)
from rocketstore.spark.sink.store_access import journal_lock

__all__ = ["abandon", "discard", "remove_orphans"]

logger = logging.getLogger(__name__)

#: Suffixes of files that the sink makes: frames, rows that cannot be messages.
SUFFIXES = {".frames", ".parquet", ".tmp"}
#: Name that the sink gives a batch write without one.
UNNAMED = re.compile("batch-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ORPHAN_AGE_S = 7 * 24 * 3600.0
#: Longest wait of a write that is given up for the commit that goes on, seconds.
ABANDON_S = 5.0


def discard(files: Sequence[Staged]) -> None:
    """Removes staged files, and their directories when those are empty."""
    for file in files:
        with _staying(file.path):
            os.unlink(file.path)
    for directory in {os.path.dirname(file.path) for file in files}:
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def abandon(path: str, files: Sequence[Staged]) -> bool:
    """Removes the staged files of a write that is given up, unless a process has begun to append
    them: a commit that was begun is finished, and needs them. True when they were removed.

    Under the journal's lock, since another process may have been asked for the commit and not have answered: it
    begins before this and is seen, or after it and finds no files, of which it appends nothing. While it has the lock,
    what it is at is not known, and they stay."""
    if not os.path.isdir(os.path.join(path, "commitlog")):
        discard(files)  # nobody commits where no store is
        return True
    try:
        with journal_lock(path, ABANDON_S):
            given_up = not is_pending(path, files)
            if given_up:
                discard(files)
            return given_up
    except SparkFaceError:
        return False


def remove_orphans(
    path: str,
    *,
    staging: str | None = None,
    bad_rows: str | None = None,
    age_s: float = ORPHAN_AGE_S,
) -> int:
    """Removes what dead tasks and processes have left, once it is a week old; how many files.
    Frames of a commit that was begun stay, however old they are: the next process that appends
    finishes it.

    Args:
        staging, bad_rows: where tasks put frames and rows; default: in the store.
    """
    sink, oldest = sink_directory(path), time.time() - age_s
    removed = remove_old(_place(bad_rows, sink / "bad_rows") / STAGED, oldest)
    needed = needed_files(path)
    if needed is None:
        return removed
    if not needed:  # what is noted of a commit that is under way ends it
        removed += remove_writers(sink / "writers", oldest)
    # The same directory may have another path there.
    names = {os.path.basename(file) for file in needed}
    for run in _directories(_place(staging, sink / "staging")):
        removed += remove_old(run, oldest, names)
        with contextlib.suppress(OSError):
            if run.stat().st_mtime < oldest:
                run.rmdir()
    return removed


def remove_writers(directory: Path, oldest: float) -> int:
    """Removes the files of batch writes without a name of the caller's, last changed before
    `oldest`. No such write is repeated, and there would be one more file for each. A file of a
    named writer is not looked into again for a week."""
    removed = 0
    for file in _entries(directory):
        with _staying(file), contextlib.suppress(ValueError, KeyError, TypeError):
            if file.suffix == ".json" and file.stat().st_mtime < oldest:
                found = read_state(file)
                if found is not None and UNNAMED.fullmatch(found["writer"]):
                    file.unlink()
                    removed += 1
                else:
                    with contextlib.suppress(OSError):  # of another user
                        os.utime(file)
    return removed


def remove_old(directory: Path, oldest: float, kept: Collection[str] = ()) -> int:
    """Removes the sink's files in a directory that were last changed before `oldest`, in seconds
    since 1970, but for those of these names."""
    removed = 0
    for file in _entries(directory):
        with _staying(file):
            old = file.suffix in SUFFIXES and file.stat().st_mtime < oldest
            if old and file.name not in kept:
                file.unlink()
                removed += 1
    return removed


def _place(given: str | None, own: Path) -> Path:
    """A directory that the caller gives, which may be a link, or that of the store."""
    return own if given is None or Path(given) == own else Path(given).resolve()


def _directories(path: Path) -> list[Path]:
    return [entry for entry in _entries(path) if entry.is_dir()]


def _entries(directory: Path) -> list[Path]:
    """Empty where there is no directory, or none any more, or a link: what a link leads to is not
    the sink's."""
    try:
        if directory.is_symlink():
            return []
        return list(directory.iterdir())
    except OSError as error:
        _tell(directory, error)
        return []


@contextlib.contextmanager
def _staying(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _tell(path, error)


def _tell(path: str | os.PathLike[str], error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        logger.warning("%s is not cleaned up: %s", os.fspath(path), error)
