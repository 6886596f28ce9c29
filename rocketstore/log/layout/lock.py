"""The lock of a store, the mark of its last writer, and the file that says "not stopped cleanly".

RocketMQ locks byte 0 of `lock` with a POSIX lock, we with an open-file-description lock: the two
exclude each other both ways (D-04), and ours does not vanish when some other descriptor of the file
is closed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable

from rocketstore._native.os import syscalls
from rocketstore._native.sync.futex import EventCount
from rocketstore.errors import HINTS, StoreClosedError, StoreLockedError
from rocketstore.log.layout.ownership import inherit_owner
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import recovery_progress, writer_pid

__all__ = [
    "HELD_HERE",
    "OUR_MARK",
    "RETRY_MS",
    "THEIR_MARK",
    "StoreLock",
    "abort_exists",
    "create_abort",
    "describe_holder",
    "describe_recovery",
    "holder_pid",
    "last_mark",
    "remove_abort",
    "rocketstore_wrote_last",
]

#: D-01: bytes 0 to 3 of `lock` while rocketstore was the last writer. RocketMQ writes "lock".
OUR_MARK = b"rock"
THEIR_MARK = b"lock"
#: Wait for the lock and its step, ms. An open file description stays locked until the last forked
#: child of its owner ends (D-35).
RETRY_MS = 1000
RETRY_STEP_MS = 20
#: Advice of the error for a store that this process has open itself.
HELD_HERE = (
    "use the store that is open, or close it; one that no variable holds any more stays open "
    "until the process ends, which closes it: rocketstore.opened(path) gives it; "
    f"{HINTS['reader_meanwhile']}"
)


class StoreLock:
    """The right to write one store. The engine holds it from before its first read until after its
    last write.

    `previous` is what the first four bytes of the file said when the lock was taken.
    """

    def __init__(self, layout: StoreLayout, fd: int, previous: bytes) -> None:
        self._layout = layout
        self._fd = fd
        self._file = os.fstat(fd)  # `is_of` asks from other threads, also while `release` closes
        self._token = syscalls.process_token()
        self.previous = previous
        #: Gives the descriptor of the locked file to the process that is to have the store next; whether it went there.
        self.bequeath: Callable[[int], bool] | None = None
        _held.add(self)

    @classmethod
    def inherited(cls, layout: StoreLayout, fd: int) -> StoreLock | None:
        """The lock that the last holder of the store has given away with this descriptor. The lock closes the
        descriptor in the end. None: no lock of the store came with it, and this call has closed it."""
        try:
            if _still_named(fd, os.fspath(layout.lock)) and syscalls.lock_first_byte(fd):
                return cls(layout, fd, syscalls.pread(fd, len(OUR_MARK), 0))
        except OSError:
            pass
        syscalls.close(fd)
        return None

    @classmethod
    def acquire(cls, layout: StoreLayout, retry_ms: int = RETRY_MS) -> StoreLock:
        """Takes the lock; makes the file when it is missing.

        Raises:
            StoreLockedError: another process holds it, which is named if it is known; another
                rocketstore after `retry_ms`, all others at once.
        """
        path = os.fspath(layout.lock)
        left_ms = retry_ms
        while True:
            fd = _open_lock(layout)
            try:
                if not syscalls.lock_first_byte(fd):
                    holder = syscalls.first_byte_holder(fd)
                    last_try = left_ms <= 0 or _held_here(os.fstat(fd))
                    if holder is not None and (holder >= 0 or last_try):
                        if _held_here(os.fstat(fd)):
                            raise StoreLockedError(path, f"this process ({os.getpid()})", HELD_HERE)
                        ours = holder < 0  # RocketMQ shares a store with nobody
                        remedy = HINTS["close_or_share"] if ours else HINTS["close_or_reader"]
                        raise StoreLockedError(path, _describe(layout, holder), remedy)
                elif _still_named(fd, path):
                    return cls(layout, fd, syscalls.pread(fd, len(OUR_MARK), 0))
            except BaseException:
                syscalls.close(fd)
                raise
            syscalls.close(fd)
            if left_ms <= 0:
                raise StoreLockedError(path, "a process that takes and releases it all the time")
            EventCount().wait(0, RETRY_STEP_MS)
            left_ms -= RETRY_STEP_MS

    @staticmethod
    def probe(layout: StoreLayout) -> int | None:
        """The holder of the lock: None for no process, -1 a rocketstore, > 0 the pid of a RocketMQ,
        0 a RocketMQ whose pid is not known in this container. The answer may be old on arrival."""
        try:
            fd = syscalls.open(os.fspath(layout.lock), os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return syscalls.first_byte_holder(fd)
        finally:
            syscalls.close(fd)

    def mark_ours(self) -> None:
        """Marks rocketstore as the writer, before any other change to the store (D-01)."""
        if self._fd < 0 or syscalls.forked_since(self._token):
            raise StoreClosedError(f"{self._layout.lock} is not held here")
        syscalls.pwrite(self._fd, OUR_MARK, 0)
        syscalls.fsync(self._fd)

    @property
    def held(self) -> bool:
        return self._fd >= 0 and not syscalls.forked_since(self._token)

    def is_of(self, file: os.stat_result) -> bool:
        """Whether this is a lock on that file."""
        return self.held and os.path.samestat(self._file, file)

    def release(self) -> None:
        """Idempotent. In a forked child it only closes: an unlock would drop the parent's lock."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        _held.discard(self)
        try:
            if not (
                syscalls.forked_since(self._token)
                or (self.bequeath is not None and self.bequeath(fd))
            ):
                # A child may still have the descriptor: closing ours would leave the store locked.
                syscalls.unlock_first_byte(fd)
        finally:
            syscalls.close(fd)


#: Locks of this process until `release`, also of stores that no variable holds any more. Iterate
#: over a copy: other threads add and discard meanwhile.
_held: set[StoreLock] = set()


def _leave_in_child() -> None:
    for lock in tuple(_held):
        with contextlib.suppress(OSError):
            lock.release()


os.register_at_fork(after_in_child=_leave_in_child)


def _open_lock(layout: StoreLayout) -> int:
    path = os.fspath(layout.lock)
    try:
        return syscalls.open(path, os.O_RDWR)
    except FileNotFoundError:
        fd = syscalls.open(path, os.O_RDWR | os.O_CREAT)
    try:
        inherit_owner(fd, layout.root.stat())
        syscalls.sync_directory(os.fspath(layout.root))
    except BaseException:
        syscalls.close(fd)
        raise
    return fd


def _still_named(fd: int, path: str) -> bool:
    """Whether the file that is locked is the one that the next process would open."""
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), named)


def _held_here(found: os.stat_result) -> bool:
    """Whether another open store of this process has the lock: waiting would not help."""
    return any(lock.is_of(found) for lock in tuple(_held))


def _describe(layout: StoreLayout, holder: int) -> str:
    if holder > 0:
        try:
            with contextlib.closing(_Descriptor(f"/proc/{holder}/comm")) as comm:
                name = syscalls.pread(comm.fd, 64, 0).decode(errors="replace").strip()
        except OSError:
            name = "?"
        return f"process {holder} ({name}), with the kind of lock that RocketMQ takes"
    if holder == 0:
        return "a process of another container, with the kind of lock that RocketMQ takes"
    pid = writer_pid(layout.positions)
    if pid is None:
        return "another rocketstore process, or a forked child of it"
    if pid == os.getpid() and _held_here(os.stat(layout.lock)):
        return f"this process ({pid}), which has the store open already, or a forked child of it"
    where = (
        " of another container or interpreter" if pid == os.getpid() else ""
    )  # both count from 1
    return f"rocketstore process {pid}{where}, or a forked child of it"


def holder_pid(layout: StoreLayout) -> int:
    """The process that has the store open for writing; 0: none has, or it is not known. The answer
    may be old when it arrives."""
    holder = StoreLock.probe(layout)
    return holder or 0 if holder != -1 else writer_pid(layout.positions) or 0


def describe_holder(layout: StoreLayout) -> str | None:
    """Names the program that has the store open for writing, and its process if it is known. None: no
    program has. The answer may be old when it arrives."""
    holder = StoreLock.probe(layout)
    return None if holder is None else _describe(layout, holder)


def describe_recovery(layout: StoreLayout) -> str:
    """Names the process that recovers or rebuilds the store, its command, for how long it runs, and
    how much of the log it has done; for a reader."""
    pid = writer_pid(layout.positions)
    if pid is None:
        who = "another rocketstore process, or a forked child of it"
    else:
        who = f"process {pid} ({_command_of(pid)})"
    with contextlib.suppress(OSError):
        seconds = max(0.0, time.time() - layout.lock.stat().st_mtime)
        who += f", which took it {seconds:.0f} s ago"
        if (told := recovery_progress(layout.positions)) is not None:
            done, total = told
            who += f" and is through {done * 100 // total} % of {total / (1 << 20):,.1f} MiB of log"
        who += ","
    return who


def _command_of(pid: int) -> str:
    try:
        with contextlib.closing(_Descriptor(f"/proc/{pid}/cmdline")) as line:
            words = syscalls.pread(line.fd, 200, 0).decode(errors="replace").split("\0")
    except OSError:
        return "?"
    return " ".join(word for word in words if word).strip()[:120] or "?"


class _Descriptor:
    def __init__(self, path: str) -> None:
        self.fd = syscalls.open(path, os.O_RDONLY)

    def close(self) -> None:
        syscalls.close(self.fd)


def last_mark(layout: StoreLayout) -> bytes:
    """What `lock` says of the last writer, for a caller without the lock; nothing if it cannot be
    read."""
    try:
        with contextlib.closing(_Descriptor(os.fspath(layout.lock))) as lock:
            return syscalls.pread(lock.fd, len(OUR_MARK), 0)
    except OSError:
        return b""


def rocketstore_wrote_last(layout: StoreLayout) -> bool:
    """Whether `lock` says so (D-01), for a caller without the lock. False if it cannot be read."""
    return last_mark(layout) == OUR_MARK


# ---- abort (format.md 9) ----


def abort_exists(layout: StoreLayout) -> bool:
    """Whether the store runs, or its last run did not stop cleanly."""
    return os.path.lexists(layout.abort)


def create_abort(layout: StoreLayout) -> None:
    """Durable when it returns. Holds our process id, as RocketMQ 5's does; no program reads it, and a
    disk without room for it has the name alone."""
    fd = syscalls.open(os.fspath(layout.abort), os.O_WRONLY | os.O_CREAT)
    try:
        inherit_owner(fd, layout.root.stat())
        syscalls.ftruncate(fd, 0)
        try:
            syscalls.pwrite(fd, str(os.getpid()).encode(), 0)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        syscalls.fsync(fd)
    finally:
        syscalls.close(fd)
    syscalls.sync_directory(os.fspath(layout.root))


def remove_abort(layout: StoreLayout) -> None:
    """The last step of a clean stop, after all else is durable."""
    with contextlib.suppress(FileNotFoundError):
        syscalls.unlink(os.fspath(layout.abort))
    syscalls.sync_directory(os.fspath(layout.root))
