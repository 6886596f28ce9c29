"""How a commit gets to the store: by its lock, or by the process that has the lock.

The sink's journal has a lock of its own, although only the one process that holds the store may
touch the journal: a thread that serves the store may still be at work when another thread has
closed the store. The next process, which then has the store, waits for the end of that thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import rocketstore
from rocketstore import ConfigError, Store, StoreLockedError
from rocketstore.spark.errors import HINTS, SparkFaceError
from rocketstore.spark.sink.handover import Request
from rocketstore.spark.sink.journal import sink_directory

__all__ = ["FileLock", "Step", "is_served", "journal_lock", "no_step", "reach"]

RETRY_S = 0.1
#: Seconds between two looks for the answer to a commit that was handed in.
ANSWER_S = 0.01
#: Seconds without progress after which an owner that took a commit is given up.
PROGRESS_TIMEOUT_S = 600.0

#: Seconds between two tries to lock a file.
LOCK_RETRY_S = 0.02
JOURNAL_TIMEOUT_S = 60.0

Step = Callable[[str], None]


class FileLock:
    """A file that a single thread of a single process holds at a time, by an exclusive flock, which
    goes with the process. Taken when this returns; the file is made.

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
                time.sleep(LOCK_RETRY_S)
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


def no_step(name: str) -> None:
    """Tests kill the process here."""


def reach(
    path: str, request: Request, timeout_s: float, on_step: Step, largest_body: int = 0
) -> Store | None:
    """The store, open for writing and for bodies of this size where its files have room for them;
    None when its owner has answered the request.

    Raises:
        SparkFaceError: RS_STORE_LOCKED, RS_HANDED_OVER.
    """
    deadline = time.monotonic() + timeout_s
    late = False  # so there is one more look at the lock when time is up
    while True:
        late = time.monotonic() >= deadline
        if is_served(path) and not late:
            request.hand_in()
            on_step("handed in")
            if wait_for_answer(path, request, deadline):
                return None
        try:
            return open_for(path, largest_body)
        except StoreLockedError as error:
            if late:
                raise not_reached(path, request, timeout_s, error.holder) from error
        time.sleep(RETRY_S)


def open_for(path: str, largest_body: int) -> Store:
    if not os.path.isdir(os.path.join(path, "commitlog")):
        # One made here would take what belongs into another: of a disk that is not mounted any
        # more, perhaps.
        raise SparkFaceError(
            "RS_WRITE_FAILED",
            f"host={socket.gethostname()} path={path}: the store is gone; see whether its disk is "
            "mounted here. A stream makes one in its first batch alone: to go on with a new one, "
            "call rocketstore.open(path).close()",
        )
    # A job leaves delivery to the program that owns the store.
    store = rocketstore.open(path, "r+", durability="os", deliver_delayed=False)
    if largest_body > store.config.max_message_size_bytes:
        with contextlib.suppress(ConfigError):
            store.configure(max_message_size_bytes=largest_body)
    return store


def wait_for_answer(path: str, request: Request, deadline: float) -> bool:
    """False when no process serves the store any more, or none has taken the request by `deadline`,
    a time of the monotonic clock: it was withdrawn then.

    Raises:
        SparkFaceError: RS_HANDED_OVER after PROGRESS_TIMEOUT_S without a sign of the owner.
    """
    seen, seen_at = 0, deadline
    while not request.answered:
        now = time.monotonic()
        if (touched := request.touched_ns) != seen:
            seen, seen_at = touched, now
        if now >= deadline and request.withdraw():
            return False
        if now >= max(deadline, seen_at + PROGRESS_TIMEOUT_S):
            raise handed_over(path, f"shows no progress for {PROGRESS_TIMEOUT_S:g} s")
        if not is_served(path):
            return request.answered
        time.sleep(ANSWER_S)
    return True


def not_reached(path: str, request: Request, timeout_s: float, holder: str) -> SparkFaceError:
    was_served = request.handed_in or is_served(path)
    if not request.withdraw():
        return handed_over(path, f"is gone, and {holder} does not serve it")
    if was_served:
        return SparkFaceError(
            "RS_STORE_LOCKED",
            f"{path} is held by {holder}, which has not taken the commit in {timeout_s:g} s; "
            f"{HINTS['lock_timeout']}",
        )
    return SparkFaceError(
        "RS_STORE_LOCKED",
        f"{path} is held by {holder} for {timeout_s:g} s; close it there, or call "
        f"rocketstore.spark.serve(store) there, or {HINTS['lock_timeout']}",
    )


def handed_over(path: str, why: str) -> SparkFaceError:
    return SparkFaceError(
        "RS_HANDED_OVER",
        f"the process that took the commit for {path} {why}; the next process that serves the "
        "store finishes it, and so does writing the same version again",
    )
