"""Files of consume queues, made before the dispatcher needs them (decisions 0020, 0021).

Making a file waits for the disk twice, and every queue waits for the dispatcher that does it. So
`QueuePreallocator` makes them in a thread: the next files of a queue that fills fast (`NextFiles`),
and first files for queues still to come (`FirstFiles`). Such a file is whole and synced, and has no
name: no reader ever finds a file after one that is not full. The dispatcher names it when the queue
needs it, and the name is synced with the units, not before them (D-18).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.mapped_files.new_file import NewFile
from rocketstore.log.worker import Worker
from rocketstore.values.kept_errors import without_frames

__all__ = ["FirstFiles", "NextFiles", "QueuePreallocator"]

logger = logging.getLogger(__name__)

#: Next files without a name, count, each with a descriptor; the oldest goes for another queue's.
NEXT_MAX: Final = 64
#: First files without a name, count, each with a descriptor.
FIRST_MAX: Final = 32
#: Descriptors of the process for each file without a name; where they are fewer, none is made.
DESCRIPTORS_A_FILE: Final = 64
#: Time to fill a file, seconds; a queue below it has its next file preallocated.
FILLED_S: Final = 120
#: Time to fill a file, seconds; a queue below it has the pages of its next file in memory as well.
#: The kernel writes them to disk once all the same, the oldest dirty pages first.
POPULATED_S: Final = 5.0
#: Time to fill a file, seconds; a queue below it has HURRIED_AHEAD next files. Syncing one takes
#: 10 to 200 ms next to a busy log. A file that the dispatcher makes itself takes 40 ms, in which a
#: million puts a second leave it 8 MiB late.
HURRIED_S: Final = 1.0
HURRIED_AHEAD: Final = 3


def _unnamed_max(most: int) -> int:
    """How many unnamed files may hold a descriptor each, at most `most`."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if limit == resource.RLIM_INFINITY else min(most, limit // DESCRIPTORS_A_FILE)


class NextFiles:
    """The files that follow the last one of a queue. Only the dispatcher takes them; any thread
    prepares them and syncs their names."""

    def __init__(
        self,
        files: MappedFileQueue,
        take_first: Callable[[Path, int], NewFile | None] = lambda _, __: None,
    ) -> None:
        """`take_first(directory, start_offset)`: a preallocated file for a queue that has none."""
        self._files = files
        self._take_first = take_first
        self._lock = SignalSafeLock("the queue files made ahead", reentrant=False)
        # Guarded by it.
        self._ready: deque[NewFile] = deque()
        # End of the file taken last, which the caller may not have added to `files` yet.
        self._taken_end = 0
        self._closed = False
        # Names given, and those of them that are on disk. A process that died may have given one:
        # everybody sees it, and the disk may not have it.
        self._given = 1
        self._durable = 0
        self._lost: OSError | None = None
        self._grown_at = time.monotonic()
        self._lasted_s = math.inf  # from the last but one `take`, or the open, to the last one

    # ---- preparing: any thread ----

    def make_ahead(self) -> int:
        """Syncs names, then prepares. Count of files that are ready. Raises: as `prepare`."""
        self.sync_names()
        self.prepare()
        return len(self._ready)

    def prepare(self) -> bool:
        """Makes the next file, with blocks, or a few if the queue is in a hurry. One thread at a
        time. False: none can be preallocated. DiskFullError, OSError: no room, nothing changed."""
        while (start := self._wanted()) is not None:
            if not self._keep(self._files.prepare(start, sparse=False)):
                return False
        return bool(self._ready)

    def _wanted(self) -> int | None:
        """Start of the next file to make; None: none is needed."""
        most = HURRIED_AHEAD if self._lasted_s < HURRIED_S else 1
        with self._lock():
            done = self._closed or self._files.last is None or len(self._ready) >= most
            return None if done else self._following()

    def _following(self) -> int:
        taken_end = max(self._files.end_offset, self._taken_end)
        return self._ready[-1].end_offset if self._ready else taken_end

    def _keep(self, new: NewFile) -> bool:
        """Adds a file to those that are ready. False: it is discarded, since none is wanted any
        more or it has its name already."""
        with self._lock():
            start = self._following()
        if new.named:
            new.discard()
            return False
        if new.start_offset != start:  # meanwhile the dispatcher has made the file itself
            new = new.moved_to(self._files.directory, start)
        if self._lasted_s < POPULATED_S:
            with contextlib.suppress(OSError):  # only speed is lost
                new.populate()
        with self._lock():
            if not self._closed and new.start_offset == self._following():
                self._ready.append(new)
                return True
        new.discard()
        return False

    def drop(self, *, closed: bool = False) -> None:
        """Discards what is ready: not needed for now, or, `closed`, never again."""
        with self._lock():
            ready, self._ready = self._ready, deque()
            self._closed = self._closed or closed
        _discard(ready)

    # ---- growing: the dispatcher ----

    def fills_soon(self, position: int) -> bool:
        """Whether the last file, written up to `position`, is full within FILLED_S of its making at
        the rate so far. The file before it counts while nothing is written yet."""
        if self._files.access != "write" or self._lasted_s < FILLED_S:
            return self._files.access == "write"  # in memory a file is made at once
        size = self._files.file_size or 0
        written = position - (self._files.end_offset - size)
        return (time.monotonic() - self._grown_at) * size < FILLED_S * written

    def take(self, start_offset: int) -> tuple[MappedFile, bool]:
        """The file that starts there, preallocated or made now, and whether it has all its blocks.
        The caller calls `sync_names` before anything relies on its name.

        Raises: as `MappedFileQueue.make`.
        """
        ready = self._take_ready(start_offset)
        whole = ready is not None
        if self._files.files:
            with contextlib.suppress(OSError):  # a sync of the queue reports it
                self.sync_names()  # of the file before: what a crash leaves has no gap
        if self._files.access != "write":
            return self._files.make(start_offset, sparse=True), False
        if ready is None and not self._files.files:
            ready = self._take_first(self._files.directory, start_offset)
        ready = ready or self._files.prepare(start_offset, sparse=True)
        try:
            file = ready.publish(durable=False)
        except FileExistsError:
            # A signal handler's exception ended the last try just after the file got its name.
            file, whole = self._files.open_made(start_offset), False
        now = time.monotonic()
        lasted_s = now - self._grown_at
        if self._given > 1:
            self._lasted_s = lasted_s
        elif self._files.files:
            # The file before is of an earlier run. What this run has seen of it is enough to ask
            # for the next file, and too little for a hurry.
            self._lasted_s = max(lasted_s, POPULATED_S)
        self._grown_at = now
        self._given += 1
        return file, whole

    def _take_ready(self, start_offset: int) -> NewFile | None:
        with self._lock():
            ready = self._ready.popleft() if self._ready else None
            self._taken_end = start_offset + (self._files.file_size or 0)
        if ready is not None and ready.start_offset != start_offset:
            ready.discard()
            ready = None
            self.drop()  # the files after it do not fit either
        return ready

    # ---- names: any thread ----

    def sync_names(self) -> None:
        """Syncs the names that were given. Raises OSError, and after that at every call (D-13)."""
        given = self._given
        self.check_names()
        if given != self._durable:
            try:
                syscalls.sync_directory(os.fspath(self._files.directory))
            except OSError as error:
                self._lost = without_frames(error)
                raise
            self._durable = max(self._durable, given)

    def check_names(self) -> None:
        """Raises the OSError of a sync of names that failed: no later sync repairs it (D-13)."""
        if self._lost is not None:
            raise without_frames(self._lost)


class FirstFiles:
    """First files for queues still to come: sparse, of one size, without a name.

    Only the dispatcher takes them; any thread makes them.
    """

    def __init__(
        self,
        directory: Path,
        tmp: Path,
        size: int,
        ask: Callable[[FirstFiles], None] = lambda _: None,
    ) -> None:
        """`directory`: the parent of all queues' directories; owner and mode are taken from it
        (D-09). `ask` is called when `make_ahead` would help."""
        self._directory = directory
        self._tmp = tmp
        self._size = size
        self._ask = ask
        self._max = _unnamed_max(FIRST_MAX)
        self._lock = SignalSafeLock("the queue files made ahead", reentrant=False)
        # Guarded by it.
        self._ready: list[NewFile] = []
        self._owner: tuple[int, ...] = ()  # that of `_ready`
        self._taken = 0
        self._expected = 0
        self._closed = False

    def expect(self, count: int) -> None:
        """The caller expects `count` more new queues soon."""
        with self._lock():
            self._expected = min(self._expected + count, self._max)
        if self.wanted:
            self._ask(self)

    def take(self, directory: Path, start_offset: int) -> NewFile | None:
        """A first file for the queue in `directory`; None: none is ready that fits there."""
        found = None
        with self._lock():
            self._taken += 1
            self._expected = max(self._expected - 1, 0)
            if self._ready and self._owner == _owner_of(directory.stat()):
                found = self._ready.pop().moved_to(directory, start_offset)
        if self.wanted:
            self._ask(self)
        return found

    @property
    def wanted(self) -> bool:
        """Whether `make_ahead` would help now."""
        return 2 * len(self._ready) < self._most

    @property
    def _most(self) -> int:
        return max(min(self._max, self._taken // 2), self._expected)

    def make_ahead(self) -> bool:
        """Makes half as many as were taken so far, or as many as are expected; one thread at a
        time. False: none can be preallocated. Raises: as `NextFiles.prepare`."""
        model = self._directory.stat()
        if self._tmp.stat().st_dev != model.st_dev:
            return False  # no directory on that disk where an unfinished file may wait (D-06)
        stale: list[NewFile] = []
        with self._lock():
            if self._owner != _owner_of(model):
                stale, self._ready = self._ready, []
            self._owner = _owner_of(model)
        _discard(stale)
        made: list[NewFile] = []
        try:
            # All are made, then all are synced: a file made between two syncs waits for each.
            for _ in range(self._most - len(self._ready)):
                made.append(self._make(model))
            for new in made:
                new.sync()
            with self._lock():
                if not self._closed:
                    self._ready += made
                    made = []
        finally:
            _discard(made)
        return not self._closed

    def _make(self, model: os.stat_result) -> NewFile:
        return NewFile.make(
            self._directory, self._tmp, 0, self._size, sparse=True, model_stat=model, durable=False
        )

    def drop(self, *, closed: bool = False) -> None:
        """Discards what is ready: not needed for now, or, `closed`, never again."""
        with self._lock():
            ready, self._ready = self._ready, []
            self._taken = self._expected = 0
            self._closed = self._closed or closed
        _discard(ready)


def _owner_of(found: os.stat_result) -> tuple[int, ...]:
    """Disk, owner, group and mode, which a file takes from its directory."""
    return found.st_dev, found.st_uid, found.st_gid, found.st_mode


def _discard(files: Iterable[NewFile]) -> None:
    for new in files:
        new.discard()


class QueuePreallocator(Worker):
    """Makes the files that queues will need soon. A failure costs only time: the dispatcher makes
    the file itself then, and reports the error that it meets."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        super().__init__("rocketstore-queue-files", on_failure)
        self._ready_max = _unnamed_max(NEXT_MAX)
        self._lock = SignalSafeLock("the queue files made ahead", reentrant=False)
        # Guarded by it.
        self._asked: dict[NextFiles | FirstFiles, None] = {}
        # How many files of which queue, in the order in which they were made.
        self._ready: dict[NextFiles | FirstFiles, int] = {}

    def ask(self, following: NextFiles | FirstFiles) -> None:
        """`following` is needed soon; asking again is no harm. Does nothing while the thread does
        not run, or where descriptors are few."""
        if not self.alive or not self._ready_max:
            return
        with self._lock():
            self._asked[following] = None
        self.wake()

    def step(self) -> float | None:
        with self._lock():
            following = next(iter(self._asked), None)
        if following is None:
            return None
        try:
            ready = following.make_ahead()
        except OSError as error:
            logger.warning("the next file of a queue is not preallocated: %s", error)
            ready = 0
        too_old = []
        with self._lock():
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
        """Drops what was not needed: a store that fails to open is stopped and never closed."""
        with self._lock():
            ready, self._ready = self._ready, {}
        for following in ready:
            following.drop()
