"""The positions page of a store: how readers in other processes follow a live log (D-30).

The page is memory that happens to have a name. Nothing in it is durable state, and it may be stale:
`PositionsPage.believable` says when a reader may believe it.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
import logging
import os
import secrets
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.positions import MAGIC, PAGE_SIZE, Positions
from rocketstore.log.layout.disk_blocks import allocate_blocks
from rocketstore.log.layout.ownership import inherit_owner

__all__ = ["PositionsPage", "State", "boot_id", "recovery_progress", "shown_in_this_boot",
           "writer_pid"]  # fmt: skip

logger = logging.getLogger(__name__)

BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
NO_ID = bytes(16)

Answer = TypeVar("Answer")


class State(enum.IntEnum):
    """State of the writer of a page."""

    NONE = 0
    RECOVERING = 1
    LIVE = 2


class PositionsPage:
    """One page, mapped. The process that holds the store's lock writes it, all others read.

    A run of the writer: `begin` right after the lock was taken, `go_live` once the log is
    recovered, `end` as the last thing before the lock goes.
    """

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self._lost = False
        self._killed = (NO_ID, 0)  # a run and where it had synced the log
        self.positions = Positions.over(file)

    @classmethod
    def create(cls, path: Path) -> PositionsPage:
        """Opens the page for its writer, which holds the store's lock. Makes the file if it is
        missing and never replaces it: a reader that has it mapped keeps seeing it."""
        name = os.fspath(path)
        try:
            fd = syscalls.open(name, os.O_RDWR)
        except FileNotFoundError:
            fd = syscalls.open(name, os.O_RDWR | os.O_CREAT)
        try:
            inherit_owner(fd, path.parent.stat())
            # Blocks for all of it: storing a position into a hole may be a signal (D-31).
            allocate_blocks(fd, 0, PAGE_SIZE)
            file = MappedFile.adopt(fd, name, 0, PAGE_SIZE)
        except BaseException:
            syscalls.close(fd)
            raise
        file.lock_memory()
        page = cls(file)
        if page.positions.magic != MAGIC:
            page.positions.format()
        return page

    @classmethod
    def open_readonly(cls, path: Path) -> PositionsPage:
        """FileNotFoundError when there is no page, or none of this version yet."""
        try:
            page = cls(MappedFile.open(os.fspath(path), 0, PAGE_SIZE, "read"))
        except ValueError:
            raise FileNotFoundError(errno.ENOENT, "no page of positions", str(path)) from None
        if page.positions.magic != MAGIC:
            page.close()
            raise FileNotFoundError(errno.ENOENT, "no page of positions of this version", str(path))
        return page

    def begin(self) -> bytes:
        """No reader believes the page from here on, until `go_live`. Returns the id of this run."""
        positions = self.positions
        if self._live(positions.run_id):
            self._killed = (positions.run_id, positions.flushed)
        positions.visible = self.shown
        positions.state = State.RECOVERING
        positions.pid = os.getpid()
        positions.boot_id = boot_id()
        run_id = secrets.token_bytes(len(NO_ID))
        positions.run_id = run_id
        positions.wrote = positions.committed = 0
        positions.notify()
        return run_id

    def tell(self, done: int, total: int) -> None:
        """How far a recovery or rebuild is, bytes of log, for the errors of readers (20.3)."""

        def change() -> None:
            self.positions.committed, self.positions.wrote = total, done

        self._change(change)

    def synced_by(self, run_id: bytes) -> int:
        """Offset up to which the run `run_id` had synced the log when it was killed, if `begin`
        found it in a page of this boot: the process is gone, the machine's memory is not. 0: not
        known."""
        killed, flushed = self._killed
        return flushed if run_id == killed != NO_ID else 0

    @property
    def shown(self) -> int:
        """Offset up to which runs of this boot have shown the log to readers: a run that was killed,
        or the one before a recovery that was. 0: not known."""
        positions = self.positions
        return positions.visible if positions.boot_id == boot_id() != NO_ID else 0

    def go_live(self) -> None:
        """The positions in the page are those of a log that may be read."""
        self.positions.state = State.LIVE
        self.positions.notify()

    def end(self) -> None:
        """The writer ends; the page says so."""
        self._change(self._say_none)

    def _say_none(self) -> None:
        self.positions.state = State.NONE
        self.positions.notify()

    def publish(self, positions: Positions) -> None:
        """Copies the private positions of the process that writes into the page, and wakes
        readers."""
        self._change(lambda: positions.publish_to(self.positions))

    def _change(self, change: Callable[[], None]) -> None:
        """Changes the page, which is for readers in other processes only. If it cannot be changed
        (the file was cut, the disk failed) they see no more of this run, and the store goes on."""
        if self._lost:
            return
        try:
            change()
        except OSError as error:
            self._lost = True
            logger.error("readers in other processes see nothing new from now on: %s", error)

    @property
    def lost(self) -> bool:
        """Whether the page could not be changed once: nothing is published any more."""
        return self._lost

    @property
    def state(self) -> State:
        """NONE too when the page holds a number that is no state."""
        try:
            return State(self.positions.state)
        except ValueError:
            return State.NONE

    def believable(self, lock_fd: int) -> bool:
        """Whether a writer of ours is at work on this page now. Ask again when nothing moves.

        `lock_fd`: a descriptor of the store's `lock`, opened by the reader for itself.
        """
        run_id = self.positions.run_id
        if not self._live(run_id) or syscalls.first_byte_holder(lock_fd) != -1:
            return False
        # The lock may have changed hands meanwhile; then the page says so first.
        return self._live(run_id)

    def _live(self, run_id: bytes) -> bool:
        positions = self.positions
        same_boot = positions.boot_id == boot_id() != NO_ID
        return same_boot and positions.state == State.LIVE and positions.run_id == run_id

    def close(self) -> None:
        """Idempotent; a thread that waits on `positions` keeps the memory."""
        self._file.close()


@functools.cache
def boot_id() -> bytes:
    """16 bytes that are new with each start of the machine; zeros where the system has none.
    OSError, which may pass, if they cannot be read now."""
    try:
        fd = syscalls.open(BOOT_ID_PATH, os.O_RDONLY)
    except (FileNotFoundError, PermissionError) as error:
        logger.warning("%s cannot be read, so live stores are followed by their files: %s",
                       BOOT_ID_PATH, error)  # fmt: skip
        return NO_ID
    try:
        return uuid.UUID(syscalls.pread(fd, 64, 0).decode().strip()).bytes
    finally:
        syscalls.close(fd)


def _asked(path: Path, question: Callable[[PositionsPage], Answer | None]) -> Answer | None:
    """What the page of a store answers; None without a page that can be read."""
    with contextlib.suppress(OSError, ValueError):
        page = PositionsPage.open_readonly(path)
        try:
            return question(page)
        finally:
            page.close()
    return None


def writer_pid(path: Path) -> int | None:
    """The process that the page names as its writer in this boot, for messages."""

    def pid(page: PositionsPage) -> int:
        return page.positions.pid if page.state and page.positions.boot_id == boot_id() else 0

    return _asked(path, pid) or None


def recovery_progress(path: Path) -> tuple[int, int] | None:
    """Bytes done and bytes in all of the recovery or rebuild that goes on, for messages; None where
    none does, or where it has not said."""

    def told(page: PositionsPage) -> tuple[int, int]:
        return page.positions.wrote, page.positions.committed * (page.state is State.RECOVERING)

    done, total = _asked(path, told) or (0, 0)
    return (min(done, total), total) if total > 0 else None


def shown_in_this_boot(path: Path) -> int:
    """`PositionsPage.shown` of a store that this process does not write; 0 without a page."""
    return _asked(path, lambda page: page.shown) or 0
