"""How a commit gets to the store: by its lock, or by a call of the process that has the lock.

The sink's journal has a lock of its own, although only the one process that holds the store may
touch the journal: a thread that appends a commit of another process may still be at work when its store was
closed. The next process, which then has the store, waits for the end of that thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import rocketstore
from rocketstore import ConfigError, OutcomeUnknownError, Store, StoreClosedError, StoreLockedError
from rocketstore.spark.errors import HINTS, SparkFaceError
from rocketstore.spark.sink.journal import sink_directory

__all__ = ["Step", "ask", "file_lock", "journal_lock", "no_step", "open_for", "reach"]

RETRY_S = 0.1
#: Longest wait for a host's hello, seconds; one that is stopped says none.
HELLO_S: Final = 5.0
#: Processes that may end over one commit, a count.
ENDED_MAX: Final = 10

#: Seconds between two tries to lock a file.
LOCK_RETRY_S = 0.02
JOURNAL_TIMEOUT_S = 60.0

Step = Callable[[str], None]


@contextlib.contextmanager
def file_lock(
    file: Path, timeout_s: float, code: str, ended: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Holds a file for a single thread of a single process at a time, by an exclusive flock, which goes with the
    process; a forked child does not have it. The file is made.

    Raises:
        SparkFaceError: with this code, after `timeout_s` seconds. StoreClosedError: `ended()` while it waited.
    """
    from rocketstore.sharing import adopt

    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        adopt(handle)
        deadline = time.monotonic() + timeout_s
        while not locked(handle):
            if ended():
                raise StoreClosedError(f"the store was closed while {file} was held by another")
            if time.monotonic() >= deadline:
                text = f"{file} is held by another for {timeout_s:g} s"
                raise SparkFaceError(code, f"{text}; {HINTS['lock_timeout']}")
            time.sleep(LOCK_RETRY_S)
        yield
    finally:
        # A child that was just forked may still have the descriptor: a close alone would leave the file locked.
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def journal_lock(
    path: str, timeout_s: float = JOURNAL_TIMEOUT_S, ended: Callable[[], bool] = lambda: False
) -> AbstractContextManager[None]:
    """The right to read and write the sink's journal of a store: one commit at a time."""
    return file_lock(sink_directory(path) / "journal.lock", timeout_s, "RS_JOURNAL_BUSY", ended)


def locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def no_step(name: str) -> None:
    """Tests kill the process here."""


def reach(
    path: str,
    call: str,
    asked: Mapping[str, Any],
    timeout_s: float,
    answer_s: float,
    largest_body: int = 0,
) -> Store | bool:
    """The store, open for writing and for bodies of this size where its files have room for them; or what the process
    that holds it has answered to a call, which may be done twice. Where that process ends before it answers, the lock
    or the next one is waited for as long again.

    Raises:
        SparkFaceError: RS_STORE_LOCKED: nothing was asked; RS_HANDED_OVER; and what `ask` raises.
    """
    deadline = time.monotonic() + timeout_s
    ended = 0
    while True:
        # So there is one more look at the lock when time is up.
        late = time.monotonic() >= deadline or ended >= ENDED_MAX
        try:
            answered = ask(path, call, asked, answer_s)
        except (ConnectionResetError, StoreClosedError):
            answered, ended, deadline = None, ended + 1, time.monotonic() + timeout_s
        if answered is not None:
            return answered
        try:
            return open_for(path, largest_body)
        except StoreLockedError as error:
            if late:
                raise not_reached(path, timeout_s, error.holder, ended > 0) from error
        time.sleep(RETRY_S)


def ask(path: str, call: str, asked: Mapping[str, Any], limit_s: float) -> bool | None:
    """What the process that holds the store answers to a call of `serve`: whether it has appended something. None: no
    process takes calls.

    Raises:
        ConnectionResetError, StoreClosedError: it has ended before it answered.
        SparkFaceError: RS_HANDED_OVER: it has not answered in time; or with the code of what went wrong there.
    """
    from rocketstore.sharing import ask_host  # tasks do without it

    try:
        said = ask_host(path, call, json.dumps(asked).encode(), min(limit_s, HELLO_S), limit_s)
    except OutcomeUnknownError as error:
        raise handed_over(path, f"{error}") from error
    if said is not None and "code" in said:
        raise SparkFaceError(str(said["code"]), f"{said['text']} (said by process {said['pid']})")
    return None if said is None else bool(said["appended"])


def open_for(path: str, largest_body: int = 0) -> Store:
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


def not_reached(path: str, timeout_s: float, holder: str, ended: bool) -> SparkFaceError:
    if ended:
        return handed_over(
            path, f"the process that was asked has ended, and {holder} has the store"
        )
    return SparkFaceError(
        "RS_STORE_LOCKED",
        f"{path} is held by {holder} for {timeout_s:g} s, which takes no commits; open it there "
        "with shared=True, or call rocketstore.spark.serve(store) there, or close it, or "
        f"{HINTS['lock_timeout']}",
    )


def handed_over(path: str, why: str) -> SparkFaceError:
    return SparkFaceError(
        "RS_HANDED_OVER",
        f"{path}: whether the commit was made is not known: {why}; writing the same version again "
        "settles it",
    )
