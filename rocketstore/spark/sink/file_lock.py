"""Files that a single thread of a single process holds at a time.

The sink's journal has such a lock, although only the one process that holds the store may touch the
journal: a thread that serves the store may still be at work when another thread has closed the
store. The next process, which then has the store, waits for the end of that thread.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.journal import sink_directory

__all__ = ["FileLock", "is_served", "journal_lock"]

RETRY_S = 0.02
JOURNAL_TIMEOUT_S = 60.0


class FileLock:
    """An exclusive flock, which goes with the process. Taken when this returns; the file is made.

    Raises:
        SparkFaceError: with this code, after `timeout_s` seconds.
    """

    def __init__(self, file: Path, timeout_s: float, code: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        deadline = time.monotonic() + timeout_s
        try:
            while not locked(handle, fcntl.LOCK_EX):
                if time.monotonic() >= deadline:
                    raise SparkFaceError(code, f"{file} is held by another for {timeout_s:g} s")
                time.sleep(RETRY_S)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        self._process = os.getpid()
        _held.add(self)

    def release(self) -> None:
        """Idempotent; a forked child only closes what it has inherited."""
        handle, self._handle = self._handle, -1
        _held.discard(self)
        if handle < 0:
            return
        try:
            if os.getpid() == self._process:
                # A child may still have the descriptor: closing ours would leave the file locked.
                fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def journal_lock(path: str) -> FileLock:
    """The right to read and write the sink's journal of a store. `is_served` holds it for a moment
    to look, so that taking it is tried again."""
    return FileLock(lock_file(path), JOURNAL_TIMEOUT_S, "RS_JOURNAL_BUSY")


_held: set[FileLock] = set()


def _leave_in_child() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_leave_in_child)


def is_served(path: str) -> bool:
    """Whether a process works with the journal now. One that serves the store does all the time."""
    try:
        handle = os.open(lock_file(path), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not locked(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def lock_file(path: str) -> Path:
    return sink_directory(path) / "journal.lock"


def locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
