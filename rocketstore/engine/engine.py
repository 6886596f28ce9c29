"""One open store: what `Store` delegates to. `Engine` is what every mode has.

`MemoryEngine` reads a dead store that was recovered in memory, `FollowingEngine` the files of a
store that another process may write, `SucceedingEngine` goes from the one to the other.
`writing_engine` has the kind that writes. `open` decides which kind an open gets.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.engine.shutdown import Closing, Ending, Steps, in_the_middle
from rocketstore.errors import (
    ConfigError,
    ReadFailedError,
    StoreClosedError,
    StoreRecoveringError,
)
from rocketstore.log.follow.writer_monitor import writer_state
from rocketstore.log.layout.identity import StoreIdentity, file_state
from rocketstore.log.layout.lock import holder_pid
from rocketstore.log.layout.store_json import is_foreign
from rocketstore.log.mapped_files.memory_log import MemoryLog
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.log.read.named_topics import check_listed
from rocketstore.log.read.reader import Reader
from rocketstore.log.read.succession import Succession, fingerprint

if TYPE_CHECKING:
    from rocketstore._native.sync.positions import Positions
    from rocketstore.config import StoreConfig
    from rocketstore.consuming.consumer_offsets import ConsumerOffsets
    from rocketstore.engine.parts import ReadParts
    from rocketstore.log.commitlog.running_flags import RunningFlags
    from rocketstore.log.follow.follower import Follower
    from rocketstore.log.follow.views import FollowerIndex, FollowerPositions
    from rocketstore.log.index.store import IndexStore
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.read.source import ReadSource
    from rocketstore.log.recovery.report import RecoveryReport
    from rocketstore.stats.statistics import Statistics, StoreStatistics
    from rocketstore.values.clock import ManualClock

__all__ = [
    "CLEAN",
    "CloseMode",
    "Engine",
    "FollowingEngine",
    "Guard",
    "MemoryEngine",
    "Opened",
    "SucceedingEngine",
]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")
_Kind = TypeVar("_Kind")

#: Longest time for which calls that need no new messages believe the last look, seconds.
LOOK_S: Final = 0.02

LockState = tuple[int, int, int] | None


class Guard:
    """Whether one open store may be used. Any thread asks; only the thread that closes the store
    writes `over`."""

    def __init__(self, path: str, flags: RunningFlags) -> None:
        self.flags = flags
        self.over = False
        self.ending = Ending()
        self._path = path
        self._token = syscalls.process_token()

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that opened the store (D-35)."""
        return syscalls.forked_since(self._token)

    @property
    def closed(self) -> bool:
        return self.over or self.forked

    def check_open(self) -> None:
        """Raises StoreClosedError after a close, and in a forked child."""
        if self.over or (self.ending.begun and self.ending.awaits_us()):
            raise StoreClosedError(
                f"the store is closed; open it again with rocketstore.open({self._path!r})"
            )
        syscalls.check_forked(self._token)

    def check_readable(self) -> None:
        """Called by readers before each look at a queue. Raises StoreClosedError,
        ReadFailedError."""
        self.check_open()
        if not self.flags.readable:
            raise ReadFailedError(f"the store takes no reads: {self.flags}")


@dataclass(frozen=True, slots=True)
class Opened:
    """What the engine of every mode is made of."""

    path: str
    layout: StoreLayout
    config: StoreConfig
    guard: Guard
    positions: Positions | FollowerPositions
    offsets: ConsumerOffsets
    recovery: RecoveryReport
    index: IndexStore | FollowerIndex | None
    source: ReadSource
    statistics: StoreStatistics


@dataclass(frozen=True, slots=True)
class CloseMode:
    """How far a close goes."""

    #: Whether the close dispatches what is left and writes the clean mark.
    clean: bool = True
    #: Whether the store stays locked, because its files are removed next.
    keep_lock: bool = False
    #: Whether waiting consumers are woken; not while the interpreter is about to end their threads.
    wake: bool = True


CLEAN = CloseMode()


class Engine(ABC):
    """One open store of any mode: readers, bounds, and a close that happens once."""

    #: Whether state of services counts; without it they find in the log what they can.
    believes_files = True
    #: Whether programs put into this store, here or through another process.
    takes_puts = False

    def __init__(self, opened: Opened) -> None:
        self.path = opened.path
        #: The `Store` objects of this engine; the last one that goes without a close warns.
        self.handles = 0
        self.layout = opened.layout
        #: Replaced by `configure` only.
        self.config = opened.config
        self.positions = opened.positions
        self.flags = opened.guard.flags
        self.offsets = opened.offsets
        self._recovery = opened.recovery
        self.index = opened.index
        self.reader = Reader(opened.source, opened.statistics.record_get, opened.path)
        self._guard = opened.guard
        self._statistics = opened.statistics
        # Held by the thread that trims or closes.
        self._exclusive = SignalSafeLock("a trim or the close", reentrant=False)
        self._closing = Closing()

    def kind_of(self, kind: type[_Kind]) -> type[_Kind]:
        """The class of a service of this store: `kind`, or one that does the same elsewhere."""
        return kind

    # ---- guards ----

    def check_owner(self, call: str) -> None:  # noqa: B027
        """Raises GuestStoreError where another process has the store, for a call that only that process
        may make."""

    @property
    def closed(self) -> bool:
        return self._guard.closed

    def check_open(self) -> None:
        self._guard.check_open()

    def check_files(self) -> None:
        """Called before the files of the log are read without the reader, by scans and shipments.

        Raises:
            StoreClosedError: the store is closed.
            ConfigError: the store was copied into memory; its files may have changed since.
        """
        self.check_open()

    # ---- what readers need ----

    @property
    def clock(self) -> ManualClock | None:
        """The clock that the open was given; None: that of the system, or nothing is written."""
        return None

    @property
    def recovery(self) -> RecoveryReport:
        """What the last open found and did."""
        return self._recovery

    @property
    def begin_offset(self) -> int:
        return self.reader.source.minimum()

    def log_bounds(self) -> tuple[StoreLayout, int, int]:
        """Where the files are, the begin of the log and the visible end, as physical offsets.

        Raises:
            ConfigError: the store was opened with untrusted=True; its files are not to be read.
            StoreClosedError, ReadFailedError.
        """
        self.check_files()
        return self.layout, self.begin_offset, self.positions.visible

    def check_topics(self, topics: Collection[str], *, must_exist: bool) -> None:
        """Looks at topics that records are wanted of: as `check_listed`."""
        self.check_open()
        source = self.reader.source
        there = {topic for topic in topics if source.queues(topic)}
        any_name = bool(there.symmetric_difference(topics)) and is_foreign(self.layout)
        if must_exist and not there.issuperset(topics):
            there.update(source.topics())
        check_listed(self.path, topics, there, must_exist=must_exist, any_name=any_name)

    def first_without_unit(self, topic: str, queue_id: int) -> int | None:
        """The first queue offset within the bounds of a queue that has no unit, since a file is
        missing: a consumer raises there. None of a queue of batches."""
        queue = self.reader.source.queue(topic, queue_id)
        if queue is None or isinstance(queue, BatchQueue):
            return None
        offset = queue.min_offset
        while offset < queue.max_offset and (located := queue.locate(offset)) is not None:
            offset += located[2]
        return offset if queue.min_offset <= offset < queue.max_offset else None

    def snapshot(self) -> Statistics:
        return self._statistics.snapshot()

    # ---- the end ----

    def close(self) -> None:
        """Idempotent; also after a failure, which leaves `abort` and the old checkpoint (D-13)."""
        if self._guard.forked:
            self._guard.over = True
            return
        self._end(lambda: self._close(CLEAN))

    def _end(self, work: Callable[[], None], *, wait: bool = True) -> None:
        """Runs `work`, or joins the end that has begun. A caller that a signal takes away does not
        stop it (D-36)."""
        self._closing.start(work)
        if wait and not in_the_middle():
            self._closing.wait()

    def one_at_a_time(self, act: Callable[[], _Result]) -> _Result:
        """Trims, changes of holds and the close exclude each other."""
        try:
            with self._exclusive():
                self.check_open()
                return act()
        finally:
            if self._closing.begun and threading.current_thread() is threading.main_thread():
                self.close()  # a signal's handler began it, and could not wait for us

    def _close(self, mode: CloseMode) -> None:
        """Idempotent; waits for a trim that goes on."""
        with self._exclusive():
            if not self._guard.over:
                self._guard.over = True
                self._close_parts(mode)

    def _close_parts(self, mode: CloseMode) -> None:
        steps = Steps()
        self._take_steps(steps, mode)
        steps.end()

    @abstractmethod
    def _take_steps(self, steps: Steps, mode: CloseMode) -> None:
        """Closes the parts, each though one before it failed, in the order that the class
        documents."""


class FollowingEngine(Engine):
    """A reader of a store that another process writes, or that has no writer since a clean stop.

    Nothing is locked and nothing is written. The close lets the files go, then the index.
    """

    positions: FollowerPositions

    def __init__(self, opened: Opened, follower: Follower) -> None:
        super().__init__(opened)
        self._follower = follower

    @property
    def recovery(self) -> RecoveryReport:
        """Says "following" from the first writer on."""
        if self._recovery.mode != "following" and self._follower.met_writer:
            self._recovery = replace(self._recovery, mode="following")
        return self._recovery

    def check_open(self) -> None:
        super().check_open()
        self._follower.check()

    def check_files(self) -> None:
        super().check_open()
        self._follower.check(now=True)

    def lacks(self, end: int) -> bool:
        """Whether the writer has not dispatched up to a physical offset yet."""
        return self._follower.lacks(end)

    def snapshot(self) -> Statistics:
        return replace(super().snapshot(), host_pid=holder_pid(self.layout))

    def _take_steps(self, steps: Steps, mode: CloseMode) -> None:
        steps.take(self._follower.close)
        if self.index is not None:
            steps.take(self.index.close)


class MemoryEngine(Engine):
    """A dead store, recovered in memory: private mappings, or a copy where the files are not
    trusted.

    Nothing moves any more. The close wakes waiting consumers, then lets queues, index and log go.
    """

    def __init__(self, opened: Opened, parts: ReadParts) -> None:
        super().__init__(opened)
        self._arrival = parts.arrival
        self._queues = parts.queues
        self._segments = parts.log
        self.believes_files = not isinstance(parts.log, MemoryLog)
        #: Whether some files of the log or of a queue have a wrong length or place, so that a
        #: follower would leave them out.
        self.odd_files = parts.odd_sizes or any(one.odd for one in parts.queues.asked_for())

    def check_files(self) -> None:
        super().check_files()
        if not self.believes_files:
            why = "what was checked is in memory; a scan and a shipment read the files, which "
            why += "may be others by now: use a consumer, or open without it"
            raise ConfigError("untrusted", True, why)

    def _take_steps(self, steps: Steps, mode: CloseMode) -> None:
        self._arrival.notify()
        for part in (self._queues, self.index, self._segments):
            if part is not None:
                steps.take(part.close)


class SucceedingEngine(Engine):
    """A reader of a dead store, until a program writes: then it follows that.

    What was recovered in memory never moves. So the reader looks at `lock` whenever it finds
    nothing, and opens the store again for the same `Reader` once a writer has come, or has come
    and gone. Consumers keep their positions: recovery in memory and on disk find the same messages.
    Where they do not, the reader says so.

    `MemoryEngine` first, then what `reopen` gives: a `FollowingEngine` while a program writes or
    after a clean stop, another `MemoryEngine` after a crash.

    The close lets the files of the newest one go; older ones go with what still refers to them.
    """

    def __init__(
        self,
        first: MemoryEngine,
        reopen: Callable[[], Engine],
        lock: LockState,
        identity: StoreIdentity,
    ) -> None:
        """`lock`: the state of the file before `first` was opened."""
        self._now: Engine = first
        self._source = Succession(first.reader.source, self._look)
        super().__init__(
            Opened(
                path=first.path,
                layout=first.layout,
                config=first.config,
                guard=first._guard,
                positions=first.positions,
                offsets=first.offsets,
                recovery=first.recovery,
                index=first.index,
                source=self._source,
                statistics=first._statistics,
            )
        )
        self._reopen = reopen
        self._lock_seen = lock
        self._identity = identity
        self._looking = SignalSafeLock("the look for a writer", reentrant=False)
        self._looked = 0.0
        self._last = fingerprint(first.reader, first.recovery.last_record_start)

    def check_open(self) -> None:
        super().check_open()
        self._identity.check(now=False)
        if time.monotonic() > self._looked + LOOK_S:
            self._look()
        self._now.check_open()

    def check_files(self) -> None:
        super().check_open()
        self._look()
        self._now.check_files()

    @property
    def recovery(self) -> RecoveryReport:
        return self._now.recovery

    def _look(self) -> None:
        """Raises StoreReplacedError where the store is another one."""
        if isinstance(self._now, FollowingEngine) or self._guard.closed:
            return  # such an engine looks itself
        with self._looking():
            if isinstance(self._now, FollowingEngine) or self._guard.closed:
                return
            self._identity.check()
            self._succeed()
            self._looked = time.monotonic()

    def _succeed(self) -> None:
        """Opens the store again if a writer has come since the last time."""
        lock, state = file_state(self.layout.lock), writer_state(self.layout)
        if state == "recovering" or (lock == self._lock_seen and state == "none"):
            return  # what was recovered in memory is served until the writer has recovered
        try:
            newer = self._reopen()
        except StoreRecoveringError:
            return
        try:
            if isinstance(newer, FollowingEngine) and newer.lacks(self.positions.dispatched):
                newer.close()
                return  # the page is that of a killed writer: the next one has not written its own yet
            self._check_kept(newer)
        except BaseException:
            newer.close()
            raise
        self._lock_seen = lock
        self._last = fingerprint(newer.reader, newer.recovery.last_record_start)
        self.positions, self.offsets, self.index = newer.positions, newer.offsets, newer.index
        self.config = newer.config
        self._source.turn(newer.reader.source)
        self._now = newer
        logger.info("%s: the reader goes on as %r", self.path, newer.recovery.mode)

    def _check_kept(self, newer: Engine) -> None:
        """Raises StoreReplacedError if the log lacks what this reader may have shown."""
        shown, end = self.positions.visible, newer.positions.wrote
        last, begin = self._now.recovery.last_record_start, newer.begin_offset
        same = begin > last or self._last in (None, fingerprint(newer.reader, last))
        if end < shown or not same:
            self._identity.refuse(
                "recovery on disk has cut off messages that this reader, which recovered the log "
                f"in memory up to {shown}, has shown; the log ends at {end} now"
            )

    def _take_steps(self, steps: Steps, mode: CloseMode) -> None:
        with self._looking():
            now = self._now
        now._take_steps(steps, mode)
        steps.take(self._identity.close)
