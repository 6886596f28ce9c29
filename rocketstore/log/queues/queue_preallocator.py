"""The next file of a consume queue, made before it is needed: making one waits for the disk twice, and behind
the dispatcher that does it every reader waits too.

A file that is made ahead has no name, so that nobody ever finds a file behind one that is not full. It gets its
name when the queue needs it, and the name comes to the disk with the units, not before them (D-18).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from rocketstore._native import syscalls
from rocketstore.log.layout.descriptors import waiting_max
from rocketstore.log.worker import Worker

if TYPE_CHECKING:
    from pathlib import Path

    from rocketstore._native.mapped_file import MappedFile
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.mapped_files.new_file import NewFile

__all__ = ["Ahead", "NextFile", "NextFileMaker", "files_made_ahead"]

logger = logging.getLogger(__name__)

#: Files that wait for their names, each with a descriptor; what waits longest goes for another queue's.
READY_MAX: Final = 64
#: A queue whose files are full within this gets the next one with its pages in memory. Those are written to the
#: disk once all the same: the kernel begins with what is dirty for so long.
POPULATED_S: Final = 5.0
#: One whose files are full within this has so many ahead: a sync of one beside a busy log takes 10 to 200 ms, and a
#: file that the dispatcher makes itself 40, in which a million puts a second are 8 MiB behind.
HURRIED_S: Final = 1.0
HURRIED_AHEAD: Final = 3


class NextFile:
    """What follows the last file of one queue. Only the dispatcher takes it; any thread syncs its name."""

    def __init__(
        self,
        files: MappedFileQueue,
        spare: Callable[[Path, int], NewFile | None] = lambda _, __: None,
    ) -> None:
        """`spare`: a file for a queue that has none, in this directory and at this offset."""
        self._files = files
        self._spare = spare
        self._lock = threading.Lock()
        # Guarded by it.
        self._ready: deque[NewFile] = deque()
        self._taken_end = (
            0  # where the file that was taken last ends; it may not be among the others yet
        )
        self._closed = False
        # Names that were given, and those of them that are on disk. One that a process gave which died may
        # not be there, although everybody sees it.
        self._given = 1
        self._durable = 0
        self._lost: OSError | None = None
        self._taken_at = 0.0
        self._lasted_s = math.inf  # how long the file before the last one was enough

    def make_ahead(self) -> int:
        """Prepares it, with the names in front of it on disk. Raises: as `prepare` and `sync_name`."""
        self.sync_name()
        self.prepare()
        return len(self._ready)

    def prepare(self) -> bool:
        """Makes it, with blocks, unless there is one; a few where the queue is in a hurry. One thread at a time.
        False: none can be made ahead.

        Raises:
            DiskFullError, OSError: no room; nothing was changed.
        """
        while (start := self._wanted()) is not None:
            if not self._keep(self._files.prepare(start, sparse=False)):
                return False
        return bool(self._ready)

    def _wanted(self) -> int | None:
        """Where the next one to be made starts; None: it has what it needs, or needs nothing."""
        with self._lock:
            most = HURRIED_AHEAD if self._lasted_s < HURRIED_S else 1
            if self._closed or self._files.last is None or len(self._ready) >= most:
                return None
            return self._following()

    def _following(self) -> int:
        if self._ready:
            return self._ready[-1].end_offset
        return max(self._files.end_offset, self._taken_end)

    def _keep(self, new: NewFile) -> bool:
        """Puts it behind those that are ready. False: none is wanted any more, or it has its name already;
        it is gone."""
        with self._lock:
            start = self._following()
        if new.named:
            new.discard()
            return False
        if new.start_offset != start:  # the dispatcher was quicker, and has made that one itself
            new = new.placed(self._files.directory, start)
        if self._lasted_s < POPULATED_S:
            with contextlib.suppress(OSError):  # only speed is lost
                new.populate()
        with self._lock:
            if not self._closed and new.start_offset == self._following():
                self._ready.append(new)
                return True
        new.discard()
        return False

    def take(self, start_offset: int) -> tuple[MappedFile, bool]:
        """The file that starts there, ready or made now, and whether it has all its blocks. `sync_name` before
        anything relies on its name.

        Raises: as `MappedFileQueue.make`.
        """
        ready = self._take_ready(start_offset)
        if self._files.files:
            with contextlib.suppress(OSError):  # who syncs the queue is told
                self.sync_name()  # of the file before: what a crash leaves has no gap
        whole = ready is not None
        if ready is None:
            if self._files.access != "write":
                return self._files.make(start_offset, sparse=True), False
            if not self._files.files:
                ready = self._spare(self._files.directory, start_offset)
            ready = ready or self._files.prepare(start_offset, sparse=True)
        try:
            file = ready.publish(durable=False)
        except FileExistsError:
            # The exception of a signal's handler ended the last try just behind the file's name.
            file, whole = self._files.open_made(start_offset), False
        self._given += 1
        now = time.monotonic()
        self._lasted_s, self._taken_at = now - self._taken_at, now
        return file, whole

    def _take_ready(self, start_offset: int) -> NewFile | None:
        with self._lock:
            ready = self._ready.popleft() if self._ready else None
            self._taken_end = start_offset + (self._files.file_size or 0)
        if ready is not None and ready.start_offset != start_offset:
            ready.discard()
            ready = None
            self.drop()  # what is behind it does not fit either
        return ready

    def sync_name(self) -> None:
        """The names that were given are on disk. Raises OSError, and once it has, always (D-13)."""
        given = self._given
        self.check_names()
        if given != self._durable:
            try:
                syscalls.sync_directory(os.fspath(self._files.directory))
            except OSError as error:
                self._lost = error
                raise
            self._durable = max(self._durable, given)

    def check_names(self) -> None:
        """Raises the OSError of the sync of names that failed: no later one makes up for it (D-13)."""
        if self._lost is not None:
            raise self._lost

    def drop(self, *, closed: bool = False) -> None:
        """It is not needed for now, or never again."""
        with self._lock:
            ready, self._ready = self._ready, deque()
            self._closed = self._closed or closed
        for new in ready:
            new.discard()


class Ahead(Protocol):
    """What can be made before it is needed."""

    def make_ahead(self) -> int:
        """How many files are ready then; 0: none can be. Raises OSError."""
        ...

    def drop(self) -> None:
        """It is not needed for now."""
        ...


class AsksAhead(Protocol):
    """Queues that tell of files they will need."""

    ask_ahead: Callable[[Ahead], None]


class NextFileMaker(Worker):
    """Makes the files that queues will soon need. A failure costs only time: the dispatcher
    makes the file itself then, and meets the error where it can be told."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        super().__init__("rocketstore-queue-files", on_failure)
        self._ready_max = waiting_max(READY_MAX)
        self._lock = threading.Lock()
        # Guarded by it.
        self._asked: dict[Ahead, None] = {}
        self._ready: dict[Ahead, int] = {}  # how many files, in the order in which they were made

    def ask(self, following: Ahead) -> None:
        """`following` will be needed; again is no harm. Does nothing while the thread does not run, or
        where descriptors are few."""
        if not self.alive or not self._ready_max:
            return
        with self._lock:
            self._asked[following] = None
        self.wake()

    def step(self) -> float | None:
        with self._lock:
            following = next(iter(self._asked), None)
        if following is None:
            return None
        try:
            ready = following.make_ahead()
        except OSError as error:
            logger.warning("the next file of a queue is not made ahead: %s", error)
            ready = 0
        too_old = []
        with self._lock:
            del self._asked[following]
            self._ready.pop(following, None)
            while self._ready and sum(self._ready.values()) + ready > self._ready_max:
                too_old.append(next(iter(self._ready)))
                del self._ready[too_old[-1]]
            if ready:
                self._ready[following] = ready
        for oldest in too_old:
            oldest.drop()
        return 0

    def finish(self) -> None:
        """What was not needed goes with the thread: whoever stops it may fail to open, and never close."""
        with self._lock:
            ready, self._ready = self._ready, {}
        for following in ready:
            following.drop()


@contextlib.contextmanager
def files_made_ahead(queues: AsksAhead) -> Iterator[None]:
    """Inside the block `queues`, which are not those of a running store, have their next files made ahead."""
    maker = NextFileMaker(lambda _: None)
    maker.start()
    queues.ask_ahead = maker.ask
    try:
        yield
    finally:
        queues.ask_ahead = lambda _: None
        maker.stop()
