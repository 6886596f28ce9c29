"""System calls seen, failed or cut off by tests of the parts that make and remove files."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.mapped_files.mapped_file_queue import Access, MappedFileQueue
from rocketstore.log.mapped_files.mapped_files import descriptor_of

#: File size of the queues of these tests.
SIZE = 8192
#: Never reached when all is well.
LONG_S = 30.0

CHANGES = ["open", "open_unnamed", "link_unnamed", "link", "rename", "rename_noreplace", "unlink"]
CHANGES += ["mkdir", "rmdir", "chown", "chmod", "fallocate", "ftruncate", "fdatasync", "fsync"]
CHANGES += ["sync_directory", "pwrite", "close"]


class Killed(BaseException):
    """The process died here. Nothing of it, clean-up included, changes the disk any more."""


class Calls:
    """All changing calls from here on, in order, as (name, arguments)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, tuple[Any, ...]]] = []
        self.errors: dict[str, list[int | None]] = {}
        self._left: int | None = None
        self._counted = ""
        self.opened: list[int] = []
        for name in CHANGES:
            monkeypatch.setattr(syscalls, name, self._wrap(name, getattr(syscalls, name)))

    def _wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if self._left is not None:
                if self._left == 0:
                    raise Killed
                self._left -= self._counted in ("", threading.current_thread().name)
            self.seen.append((name, arguments))
            queue = self.errors.get(name)
            if queue and (number := queue.pop(0)) is not None:
                raise OSError(number, os.strerror(number), str(arguments[0]))
            result = real(*arguments)
            if name in ("open", "open_unnamed"):
                self.opened.append(result)
            return result

        return call

    def kill_before(self, number: int, thread: str = "") -> None:
        """The process dies before the call `number` from now on, counted from 0. `thread`: only calls of the
        one with this name count, so that a number names the same call in every run."""
        self._left, self._counted = number, thread

    def live_on(self) -> None:
        """The process dies no more."""
        self._left = None

    def fail(self, name: str, *numbers: int | None) -> None:
        """The next calls of `name` fail with these errnos; None: that one works."""
        self.errors.setdefault(name, []).extend(numbers)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.seen]

    def bury(self) -> None:
        """Closes what a killed process had open."""
        self.live_on()
        for fd in self.opened:
            with contextlib.suppress(OSError):
                close_for_its_owner(fd)


def close_for_its_owner(fd: int) -> None:
    """What it stands for is closed. Its number stays taken: an object may still have it, and when it goes it
    would close what another test has opened by then. OSError: it is not open."""
    os.fstat(fd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may grow beyond `size`: what a full disk looks like without one (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def blocks(file: MappedFile) -> int:
    with descriptor_of(file) as descriptor:
        return syscalls.allocated_bytes(descriptor)


def open_queue(
    directory: Path, access: Access = "write", file_size: int | None = SIZE
) -> MappedFileQueue:
    return MappedFileQueue(
        directory,
        access,
        file_size=file_size,
        name="commit log",
        tmp_directory=directory.parent / "tmp",
    )


def put(directory: Path, start: int, size: int = SIZE, fill: bytes = b"\0") -> Path:
    path = directory / segment_name(start)
    path.write_bytes(fill * size)
    return path


def loaded(
    directory: Path, access: Access = "write", file_size: int | None = SIZE
) -> MappedFileQueue:
    queue = open_queue(directory, access, file_size)
    queue.load()
    return queue


def starts(queue: MappedFileQueue) -> list[int]:
    return [file.start_offset for file in queue.files]


def created(queue: MappedFileQueue, start: int, *, sparse: bool) -> MappedFile:
    """A new file at the end of `queue`."""
    file = queue.make(start, sparse=sparse)
    queue.publish(file)
    return file


class Disk:
    """Makes segments when it is told to; fails as it is told to."""

    def __init__(self, root: Path) -> None:
        for name in ("tmp", "commitlog"):
            (root / name).mkdir()
        self.queue = MappedFileQueue(
            root / "commitlog", "write", file_size=SIZE, name="log", tmp_directory=root / "tmp"
        )
        self.asked: list[int] = []
        self.times: list[float] = []
        self.errors: list[BaseException] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    @property
    def names(self) -> list[str]:
        return names(self.queue.directory)

    def create(self, start: int) -> MappedFile:
        self.asked.append(start)
        self.times.append(time.monotonic())
        self.entered.release()
        assert self.gate.wait(LONG_S)
        if self.errors:
            raise self.errors.pop(0)
        return self.queue.make(start, sparse=False)

    def busy(self) -> None:
        """Waits until a creation has begun; it does not end before `gate` is set."""
        assert self.entered.acquire(timeout=LONG_S)
