"""Writers of a store as another process sees them: the lock, the positions page, the files."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rocketstore._native.os import syscalls
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import PositionsPage
from tests.support.made_store import MadeStore, Record


class LiveWriter:
    """What another process sees of a rocketstore that writes: the lock, the page, the files."""

    def __init__(self, root: Path) -> None:
        self.made = MadeStore(root)
        self.layout = StoreLayout(root)
        make_directories(self.layout)
        self.lock_fd = syscalls.open(str(self.layout.lock), os.O_RDWR | os.O_CREAT)
        self.page = PositionsPage.create(self.layout.positions)
        self.start()

    def start(self) -> None:
        """A new run, at the end of what is there."""
        assert syscalls.lock_first_byte(self.lock_fd)
        self.page.begin()
        self.move(self.made.end)
        self.page.go_live()

    def stop(self) -> None:
        self.page.end()
        syscalls.unlock_first_byte(self.lock_fd)

    def lose_all(self, topic: str) -> None:
        """What it wrote is gone, and the next run makes files of the same names."""
        for directory in (self.layout.commit_log, self.layout.queue_directory(topic, 0)):
            for path in directory.iterdir():
                path.unlink()
        self.made.end = 0
        self.made.records.clear()
        self.made._dispatched = 0
        self.made._next.clear()

    def make_again(self, topic: str) -> None:
        """The same bytes in other files of the same names."""
        for directory in (self.layout.commit_log, self.layout.queue_directory(topic, 0)):
            for path in directory.iterdir():
                again = path.with_name("again")
                again.write_bytes(path.read_bytes())
                again.rename(path)

    def die(self) -> None:
        """As a killed process: the lock goes, the page stays as it was."""
        syscalls.unlock_first_byte(self.lock_fd)

    def move(self, end: int, *, minimum: int = 0) -> None:
        positions = self.page.positions
        for name in ("wrote", "committed", "flushed", "visible", "dispatched", "indexed"):
            setattr(positions, name, end)
        positions.minimum = minimum
        positions.notify()

    def fill(self, count: int, queue_id: int = 0) -> list[Record]:
        records = self.made.fill(count, queue_id=queue_id)
        self.move(self.made.end)
        return records

    def close(self) -> None:
        self.page.close()
        syscalls.close(self.lock_fd)


@contextlib.contextmanager
def java_writer(layout: StoreLayout) -> Iterator[None]:
    """A process that holds the lock as RocketMQ does, with a POSIX record lock."""
    program = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    arguments = [sys.executable, "-c", program, str(layout.lock)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate()
