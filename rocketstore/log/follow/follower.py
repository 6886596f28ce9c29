"""A store that another process writes, read without a lock.

While a rocketstore writer lives, the positions page says how far everything is (D-30), and its
futex wakes the reader. A Java writer has no such page, and a store without a writer has no one to
keep it: then the follower reads the files themselves, and a queue unit counts only when it matches
its record. Nothing is created, locked or changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.positions import Positions
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import StoreBehindError, StoreClosedError
from rocketstore.log.follow.catching_up import wait_for_writer
from rocketstore.log.follow.log_view import Anchor, LogView
from rocketstore.log.follow.queue import FollowerQueue
from rocketstore.log.follow.queue_files import UnitCheck
from rocketstore.log.follow.writer_monitor import SteadyLooks, WriterMonitor, WriterState
from rocketstore.log.layout.identity import StoreIdentity
from rocketstore.log.layout.lock import abort_exists
from rocketstore.log.layout.paths import StoreLayout, is_safe_name
from rocketstore.log.layout.positions_page import PositionsPage
from rocketstore.log.layout.store_json import load_store_state, time_breaks
from rocketstore.log.queues.blocked_queues import FollowedBlocks
from rocketstore.log.queues.directories import directory_names, is_queue_id, refuse_rocksdb_queues
from rocketstore.log.queues.mapping_cache import MappingCache
from rocketstore.log.queues.saved_ends import FollowerEnds
from rocketstore.log.read.batch_queue import BatchQueue, BatchQueues
from rocketstore.log.read.fetch_result import ReadView
from rocketstore.log.read.source import Holders

__all__ = ["Follower"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Longest wait before the follower checks that the writer lives, ms; a killed writer wakes no one.
BELIEF_MS: Final = 100
#: Shortest and longest wait between two looks at the files, ms, where no futex wakes the reader;
#: the wait doubles while nothing comes.
SHORTEST_LOOK_MS: Final = 1
LONGEST_LOOK_MS: Final = 50
#: Longest wait for another writer after one that died before its queues had what this process put,
#: seconds.
NEXT_WRITER_S: Final = 5.0


class Follower:
    """A `ReadSource` over the files of a store. Any thread may use it.

    One lock guards what is known of the writer and the log's files; queues have their own.
    """

    def __init__(
        self, layout: StoreLayout, *, verify: int, stopped: tuple[int, int] | None = None
    ) -> None:
        """`stopped`: begin and end of a log whose writer stopped cleanly, with all of it in its
        queues. The follower believes them until a writer comes."""
        self._layout = layout
        self._stopped = stopped
        self._verify = verify
        self._lock = SignalSafeLock("the follower")
        self._closed = False
        self._token = syscalls.process_token()
        self._watch = WriterMonitor(layout)
        self._log = LogView(layout, verify)
        self._queues: dict[tuple[str, int], FollowerQueue] = {}
        self._mapped = MappingCache()
        self._ends = FollowerEnds(layout)
        self._changes = -1
        #: Another writer, or none, since whole segments were compared.
        self._met_another = False
        self._look_ms = SHORTEST_LOOK_MS
        self._view = ReadView(0, 0, 0, 0)
        self._matching = UnitCheck(self, self.found)
        self._batches = BatchQueues(layout, lambda: self._view, self._matching.batch_unit)
        self._blocked = FollowedBlocks(layout)
        self._arrival = _Arrival(self)
        self._anchor = Anchor()
        self._identity = StoreIdentity(layout)
        self.steady = SteadyLooks(layout, self._watch, lambda: self.writer, self.look)
        self.holders = Holders()
        #: Up to where this process has put, as far as readers see it: `catch_up` waits for it.
        self.own_end: Callable[[], int] = int
        try:
            self._writer = self._watch.see()
            with self._lock():
                self._log.list()
                self._log.start_walk(None if stopped is None else stopped[1])
                self._move()
        except BaseException:
            self.close()
            raise

    # ---- ReadSource ----

    @property
    def segment_size(self) -> int:
        return self._log.segment_size

    @property
    def verify(self) -> int:
        return self._verify | self._log.lenient

    @property
    def arrival(self) -> _Arrival:
        return self._arrival

    def check(self, *, now: bool = False) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")
        syscalls.check_forked(self._token)
        self._identity.check(now=now)

    def topics(self) -> tuple[str, ...]:
        self.check(now=True)
        self._wait_for_own()
        refuse_rocksdb_queues(self._layout)
        names = self.steady.of(
            lambda: (*directory_names(self._layout.consume_queue), *self._batches.topics())
        )
        self._blocked.look()
        blocked = {topic for topic, _ in self._blocked.places}.difference(names)
        return tuple(name for name in (*names, *sorted(blocked)) if is_safe_name(name))

    def queues(self, topic: str) -> tuple[int, ...]:
        self.check(now=True)
        self._wait_for_own()
        refuse_rocksdb_queues(self._layout)
        if not is_safe_name(topic):
            return ()
        found = self.steady.of(
            lambda: _queue_ids(self._layout, topic) or tuple(self._batches.queues(topic))
        )
        self._blocked.look()
        blocked = {number for name, number in self._blocked.places if name == topic}
        return tuple(sorted({*found, *blocked})) if blocked else found

    def queue(self, topic: str, queue_id: int) -> FollowerQueue | BatchQueue | None:
        known = self._queues.get((topic, queue_id))
        if known is None:
            self._blocked.look()
        self._blocked.check(topic, queue_id)
        if known is None:
            refuse_rocksdb_queues(self._layout)
        if known is None and is_safe_name(topic):
            queues, found = self.steady.of(partial(self._first_look, topic, queue_id))
            if not isinstance(found, FollowerQueue):
                return found
            with self._lock():  # another run has other queues, and another dict
                known = queues.setdefault((topic, queue_id), found)
        return known

    def _first_look(
        self, topic: str, queue_id: int
    ) -> tuple[dict[tuple[str, int], FollowerQueue], FollowerQueue | BatchQueue | None]:
        """A queue, with the end that its files show now, and the queues of this run."""
        queues, directory = self._queues, self._layout.queue_directory(topic, queue_id)
        if not directory.is_dir():
            return queues, self._batches.queue(topic, queue_id)
        queue = FollowerQueue(
            directory,
            lambda: self._view,
            self._matching.units_of(topic, queue_id),
            self._mapped.mapped,
            partial(self._ends.least, topic, queue_id),
        )
        queue.max_offset  # noqa: B018
        return queues, queue

    def segments(self) -> tuple[MappedFile, ...]:
        return self._log.segments

    def minimum(self) -> int:
        return self._view.minimum

    def visible(self) -> int:
        return self._view.visible

    def time_breaks(self) -> list[tuple[int, int]]:
        return time_breaks(load_store_state(self._layout))

    def look(self) -> None:
        """Moves the bounds to where the writer is now."""
        self.check(now=True)
        with self._lock():
            self._look()

    def catch_up(self) -> None:
        """`look`; waits a moment where the writer has not dispatched what is visible.

        Raises:
            StoreBehindError: the writer's dispatch is stopped.
        """
        self.look()
        self._wait_for("consume queues", self._view.visible, any_move=True)
        self._wait_for_own()
        self._blocked.look()

    def _wait_for_own(self) -> None:
        """Waits a moment until what this process has put itself is in its queues; where the process died
        that wrote it, for the next one.

        Raises:
            StoreBehindError: no process brings it there.
        """
        deadline = time.monotonic() + NEXT_WRITER_S
        while (end := self.own_end()) > (self._view.dispatched or 0):
            self._wait_for("consume queues", end, any_move=False)
            if self._view.dispatched is None and not abort_exists(self._layout):
                return  # the last writer has stopped in order
            if time.monotonic() >= deadline:
                reason = (
                    "the process that wrote them has died, and no other has recovered the store"
                )
                raise StoreBehindError(str(self._layout.root), "consume queues", reason)
            time.sleep(SHORTEST_LOOK_MS / 1000)
            self.look()

    def again(self, look: Callable[[], T], error: Exception, /) -> T:
        """Where one writer died and the next one recovers, a read may have units of the one, and files or bounds
        of the other: that is no damage."""
        self.look()
        return self.steady.of(look)

    def wait_indexed(self) -> None:
        """Waits a moment until the key index has the keys of all that is visible now.
        StoreBehindError: the writer's index is stopped."""
        self._wait_for("key index", self._view.visible, any_move=False)

    def _wait_for(self, part: str, target: int, *, any_move: bool) -> None:
        def look() -> tuple[int, int, Positions] | None:
            with self._lock():
                self._look()
                page, dispatched = self._watch.page, self.dispatched()
                if self._closed or page is None or dispatched is None:
                    return None
                at = page.positions.indexed if part == "key index" else dispatched
                return at, self._changes, page.positions

        wait_for_writer(self._layout, part, look, target, any_move=any_move)

    def end(self) -> int:
        """The end of the last record. If no writer says it, walks the newest segments, from where
        the last walk ended."""
        with self._lock():
            # The view was moved by files, also if a writer recovers since: it says no end.
            if self._view.dispatched is None and self._log.segments:
                end = self._log.last_record_end()
                self._anchor.note(self._log.segments, end)
                return end
            return self._view.visible

    def flushed(self) -> int | None:
        """The flushed position of a live rocketstore writer; None without one."""
        with self._lock():
            page = self._watch.page
            if self._writer.state != "live" or page is None:
                return None
            flushed = page.positions.flushed
            return flushed if page.positions.run_id == self._writer.run else None

    def dispatched(self) -> int | None:
        """The dispatched position of a live rocketstore writer; None without one."""
        with self._lock():
            return self._view.dispatched if self._writer.state == "live" else None

    # ---- more than ReadSource ----

    def lacks(self, end: int) -> bool:
        """Whether a live writer has not dispatched up to a physical offset yet."""
        dispatched = self._view.dispatched
        return self._writer.state == "live" and dispatched is not None and dispatched < end

    def lacks_files(self) -> list[str]:
        """What a live writer shows, and what has no file: one sentence, or none."""
        with self._lock():
            page = self._watch.page
            if self._writer.state != "live" or page is None:
                return []
            visible = page.positions.visible  # before the files are listed, the minimum after it
            self._log.list()
            return self._log.lacks(page.positions.minimum, visible)

    @property
    def writer(self) -> WriterState:
        """The kind of writer: "live" (rocketstore), "recovering" (it opens or closes), "java",
        "none"."""
        return self._writer.state

    @property
    def met_writer(self) -> bool:
        """Whether a program wrote since the clean stop that this follower began with."""
        return self._stopped is None

    def close(self) -> None:
        """Closes all files. Messages that were read stay readable."""
        with self._lock():
            if self._closed:
                return
            self._closed = True
            for queue in self._queues.values():
                queue.close()
            self._log.close()
            self._queues.clear()
            self._batches.close()
            self._watch.close()
            self._identity.close()

    # ---- where the writer is ----

    def _look(self) -> None:
        """Moves the bounds; begins again when another writer or another run is met."""
        writer = self._watch.see()
        if writer != self._writer:
            logger.info(
                "%s: writer is %s, was %s", self._layout.root, writer.state, self._writer.state
            )
            new_run = writer.state != "recovering" and (
                writer.run != self._writer.run
                or writer.state == "java"
                or self._writer.state == "recovering"
            )
            if new_run:
                # Another run may have cut the log: forget its files. Readers validate their cursors
                # against the new bounds.
                self._forget()
            self._writer = writer  # last: if `_forget` failed, the next look forgets again
            self._stopped = None
            self._met_another = True
            self._changes = -1
        self._move()

    def _move(self) -> None:
        """Moves the view to where the writer is."""
        state = self._writer.state
        if state == "recovering":
            return
        page = self._watch.page
        if state == "live" and page is not None:
            self._move_by_page(page)
            return
        if self._stopped is not None and (
            state != "none" or self._is_changed() or self._log.is_written_at(self._stopped[1])
        ):
            self._stopped = None  # also when a writer came and went between two looks
            self._met_another = True
        if self._stopped is None:
            self._move_by_files()
        elif self._view.dispatched != self._stopped[1]:
            begin, end = self._stopped
            self._set(begin, end, end)
            self._anchor.note(self._log.segments, end)

    def _is_changed(self) -> bool:
        """Whether the log has other files than at the last listing. StoreReplacedError where it
        lacks what was shown: a writer that came and went has cut it, or a copy is in its place."""
        if not self._log.listing_due:
            return False
        before = self._log.segments
        self._log.list()
        self._anchor.check(self._identity, self._log.segments, None)
        return self._log.segments != before

    def _move_by_page(self, page: PositionsPage) -> None:
        positions = page.positions
        changes = positions.changes
        listing_due = self._log.listing_due
        if changes == self._changes and not listing_due:
            return
        # The writer stores them in the opposite order, so dispatched <= visible holds here, too.
        dispatched = positions.dispatched
        visible = positions.visible
        minimum = positions.minimum
        if positions.run_id != self._writer.run:
            return  # A new run began between two loads; the next look sees it whole.
        segments = self._log.segments
        outside = not segments or not segments[0].end_offset > minimum or self._log.end < visible
        if outside or listing_due:
            self._log.list()
        self._changes = changes
        visible = min(visible, self._log.end)
        self._anchor.check(
            self._identity, self._log.segments, visible, whole=listing_due or self._met_another
        )
        self._met_another = False
        self._set(minimum, visible, dispatched)
        self._anchor.note(self._log.segments, visible)

    def _move_by_files(self) -> None:
        due = self._log.listing_due or self._met_another
        self._met_another = False
        if due or not self._log.segments or self._log.next_exists():
            self._log.list()
        self._anchor.check(self._identity, self._log.segments, None, whole=due)
        # The files say nothing by themselves: each look has to go to the units.
        self._set(0, self._log.end, None)

    def _set(self, minimum: int, visible: int, dispatched: int | None) -> None:
        old = self._view
        begin = max(minimum, self._log.begin)
        self._view = ReadView(old.epoch + 1, begin, visible, dispatched)
        if begin > old.minimum:
            self.holders.release(begin)

    def _forget(self) -> None:
        # Other threads read meanwhile: close nothing that they may hold, and always show segments.
        self._queues = {}
        self._mapped.clear()
        self._ends = FollowerEnds(self._layout)
        self._batches.close()
        self._log.list(replace=True)
        self._log.start_walk(None)

    def found(self) -> None:
        """Called when new units were seen: the next waits are short."""
        self._look_ms = SHORTEST_LOOK_MS


def _queue_ids(layout: StoreLayout, topic: str) -> tuple[int, ...]:
    names = directory_names(layout.consume_queue / topic)
    return tuple(sorted(int(name) for name in names if is_queue_id(name)))


def _left_ms(deadline: float | None) -> int:
    """The next wait, ms: until the deadline, and no longer than BELIEF_MS."""
    if deadline is None:
        return BELIEF_MS
    return min(BELIEF_MS, int((deadline - time.monotonic()) * 1000 + 0.999))


class _Arrival:
    """Counts the moves of a follower's view."""

    __slots__ = ("_follower",)

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    @property
    def count(self) -> int:
        follower = self._follower
        with follower._lock():
            if not follower._closed:
                follower._identity.check()
                follower._look()
            return follower._view.epoch

    def wait(self, seen: int, timeout_ms: int | None) -> int:
        """Waits until the view moves away from `seen`."""
        follower = self._follower
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while True:
            with follower._lock():
                follower.check(now=True)
                follower._look()
                epoch, changes = follower._view.epoch, follower._changes
                page, live = follower._watch.page, follower._writer.state == "live"
            left_ms = _left_ms(deadline)
            if live and (epoch != seen or left_ms <= 0):
                return epoch
            if live and page is not None:
                page.positions.wait_change(changes, left_ms)
                continue
            # Without a page each look moves the epoch; only this wait spaces the looks.
            if left_ms > 0:
                time.sleep(min(follower._look_ms, left_ms) / 1000)
            follower._look_ms = min(follower._look_ms * 2, LONGEST_LOOK_MS)
            return follower._view.epoch
