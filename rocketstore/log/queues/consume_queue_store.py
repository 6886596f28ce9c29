"""All consume queues of a store: `consumequeue/<topic>/<queue id>/`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import ReadFailedError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import sync_file_system
from rocketstore.log.mapped_files.mapped_file_queue import Access
from rocketstore.log.queues.blocked_queues import BlockedQueues
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.directories import QueueDirectories, names_digest, queues_in
from rocketstore.log.queues.files_stamp import index_stamp, queues_stamp
from rocketstore.log.queues.mapping_cache import MappingCache
from rocketstore.log.queues.queue_files import QueueFiles
from rocketstore.log.queues.queue_preallocator import FirstFiles, NextFiles, QueuePreallocator
from rocketstore.log.queues.saved_ends import (
    QueueEnds,
    drop_queue_ends,
    load_queue_ends,
    queue_key,
    save_queue_ends,
)
from rocketstore.log.queues.units import UNIT_SIZE, UnitRefusedError, has_units_up_to

logger = logging.getLogger(__name__)

__all__ = ["ConsumeQueueStore", "digest_below", "has_lost_any", "has_shortened"]

#: Dirty queues that are synced one by one, count; more are synced by one call for the whole file
#: system (D-19).
SYNC_EACH_MAX = 64
#: Units of first files in which an open looks for unwritten ones, a count: 256 MiB.
LOOKED_UNITS: Final = (256 << 20) // UNIT_SIZE


class ConsumeQueueStore:
    """Queues by topic and id. Only the dispatcher adds some."""

    def __init__(
        self, layout: StoreLayout, access: Access, file_size: int, log_minimum: Callable[[], int]
    ) -> None:
        self._layout = layout
        self._access: Access = access
        self.file_size = file_size
        self._log_minimum = log_minimum
        self._lock = SignalSafeLock("the table of queues")
        #: Queues by topic and queue id; None: it has a directory, and no caller has asked for it.
        self._queues: dict[str, dict[int, ConsumeQueue | None]] = {}
        self._making: dict[tuple[str, int], ConsumeQueue] = {}
        self._mapped = MappingCache()
        #: Called when files will be needed soon.
        self.ask_ahead: Callable[[NextFiles | FirstFiles], None] = lambda _: None
        self.directories = QueueDirectories(layout.consume_queue, makes=access == "write")
        self._first_files = FirstFiles(
            layout.consume_queue, layout.tmp, file_size, lambda wanted: self.ask_ahead(wanted)
        )
        self._digest: tuple[int, int] | None = None
        self.ends = QueueEnds()
        self._ends_hold = False
        self._failed = False
        self.blocked = BlockedQueues(layout, writes=access == "write")

    def load(self) -> None:
        """Lists every queue that has a directory; its files are opened when they are needed."""
        self.ends = load_queue_ends(self._layout, without_ends=self._access == "memory")
        if self._access == "memory":
            return
        self.blocked.begin()
        for topic, queue_id, _ in queues_in(self._layout.consume_queue):
            # No object for each yet: for many queues they would cost seconds and megabytes.
            self._queues.setdefault(topic, {})[queue_id] = None

    def add(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, known from now on; its directory is made with its first file."""
        with self._lock():
            queues = self._queues.setdefault(topic, {})
            return queues.get(queue_id) or self._made(queues, topic, queue_id)

    def _made(
        self, queues: dict[int, ConsumeQueue | None], topic: str, queue_id: int
    ) -> ConsumeQueue:
        files = QueueFiles(
            self._layout.queue_directory(topic, queue_id),
            self._access,
            self.file_size,
            tmp_directory=self._layout.tmp,
            make_place=self.directories.make,
            mapped=self._mapped.mapped,
            ask_ahead=lambda following: self.ask_ahead(following),
            take_first=self._first_files.take,
        )
        new = ConsumeQueue(topic, queue_id, files, self._log_minimum)
        if self._ends_hold:
            new.known_end = self.ends.least(topic, queue_id)
        # A signal handler may make the queue, too, at any line here. The first one noted wins.
        key = topic, queue_id
        new = self._making.setdefault(key, new)
        queues[queue_id] = queue = queues.get(queue_id) or new
        self._making.pop(key, None)
        return queue

    def expect(self, count: int) -> None:
        """Preallocates first files: the caller expects messages for `count` new queues."""
        self._first_files.expect(count)

    @contextlib.contextmanager
    def preallocating(self) -> Iterator[None]:
        """Inside the block a thread preallocates the files of these queues, as it does in a running
        store."""
        preallocator = QueuePreallocator(lambda _: None)
        preallocator.start()
        self.ask_ahead = preallocator.ask
        try:
            yield
        finally:
            self.ask_ahead = lambda _: None
            preallocator.stop()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queues = self._queues.get(topic, {})
        if (found := queues.get(queue_id)) is not None or queue_id not in queues:
            return found
        with self._lock():
            return queues[queue_id] or self._made(queues, topic, queue_id)

    def topics(self) -> list[str]:
        with self._lock():
            return sorted(self._queues)

    def queues(self, topic: str) -> list[int]:
        with self._lock():
            return sorted(self._queues.get(topic, ()))

    def all(self) -> list[ConsumeQueue]:
        with self._lock():
            return [
                queue or self._made(queues, topic, queue_id)
                for topic, queues in list(self._queues.items())
                for queue_id, queue in list(queues.items())
            ]

    def __len__(self) -> int:
        with self._lock():
            return sum(map(len, self._queues.values()))

    def max_physical_end(self, log_end: int, later: Mapping[tuple[str, int], int]) -> int:
        """End of the last record that any queue has; -1 when there is no unit at all. A queue that
        points beyond `log_end` does not count where its units can be none, or where the log has a
        `later` message of it, by the last queue offset that its units lack."""
        found = -1
        for queue in self.all():
            end, known = queue.physical_end, later.get((queue.topic, queue.queue_id), -1)
            if end > log_end and (known + 1 >= queue.written_end or not queue.is_believed):
                logger.error("%s: the last file holds bytes that are no units", queue.directory)
                continue
            found = max(found, end)
        return found

    def truncate(self, physical_offset: int, *, whole: bool) -> int:
        """Clears units at or beyond `physical_offset` in every queue; returns in how many."""
        return sum(queue.truncate_from(physical_offset, whole=whole) for queue in self.all())

    def settle(self, refilled: Collection[tuple[str, int]], *, trimmed: bool) -> None:
        """After an open has dispatched what was missing: pre-blanks for unwritten units that have
        no message any more, in queues that were `refilled`. In a `trimmed` log other queues may
        have some in their first file, of messages that are gone."""
        filled, left = [], LOOKED_UNITS if trimmed else 0
        for queue in self.all():
            queue.forget_minimum()
            holed = (queue.topic, queue.queue_id) in refilled
            try:
                if not holed and left > 0:
                    left -= queue.first_file_units
                    holed = queue.has_hole_in_first_file
                found = queue.fill_holes() if holed else None
            except (OSError, ReadFailedError) as error:
                logger.error("%s: units that were never written stay so: %s", queue.name, error)
                continue
            if found is not None:
                filled.append((queue.topic, queue.queue_id, *found))
        if filled and self._access == "write":
            self.sync(filled)

    def trim(self, minimum: int) -> None:
        for queue in self.all():
            queue.trim(minimum)

    def sync(self, dirty: Iterable[tuple[str, int, int, int]]) -> bool:
        """Syncs (topic, queue id, first unit, end unit) ranges. False once a sync has failed: then
        the queue files are degraded and never synced again (D-13); the next open rebuilds them."""
        if self._failed:
            return False
        ranges = list(dirty)
        try:
            if len(ranges) > SYNC_EACH_MAX:
                for topic, queue_id, _, _ in ranges:
                    self.add(topic, queue_id).check_names()
                sync_file_system(self._layout.consume_queue)
            else:
                queues = [self.add(topic, queue_id) for topic, queue_id, _, _ in ranges]
                self.directories.sync(queue.directory for queue in queues)
                for queue, (_, _, first, end) in zip(queues, ranges, strict=True):
                    queue.sync(first, end)
        except OSError as error:
            self.degrade(error)
        return not self._failed

    @property
    def degraded(self) -> bool:
        """Whether units may be missing on disk although their queue has them."""
        return self._failed

    def degrade(self, cause: BaseException) -> None:
        """From here on no caller trusts the queue files to be on disk."""
        if not self._failed:
            self._failed = True
            logger.error("consume queues are not synced any more: %s", cause)

    def digest(self) -> tuple[int, int]:
        """Number of queues and CRC-32C of their sorted names: what our checkpoint keeps (D-18)."""
        with self._lock():
            if self._digest is None or self._digest[0] != len(self):  # queues are never removed
                self._digest = names_digest(
                    (topic, n) for topic, queues in list(self._queues.items()) for n in list(queues)
                )
            return self._digest

    # ---- least ends, as saved by the last close ----

    def know_ends(self, log_end: int) -> None:
        """Gives each queue its saved end, below which units are missing. A log that ends earlier,
        at `log_end`, makes the saved ends void."""
        if self.ends.log_end > log_end:
            self.forget_ends()
            return
        self._ends_hold = True
        for queue in self.asked_for():
            queue.known_end = self.ends.least(queue.topic, queue.queue_id)

    def note_rebuilt(self, log_end: int, take_gap: Callable[[str, int, int], None]) -> None:
        """After a rebuild: drops the saved ends. Offsets above the last message were already
        assigned, so pre-blank units fill them. `take_gap(queue, end, saved end)` raises
        UnitRefusedError where the log cannot have lost that many messages."""
        if self.ends.log_end > log_end:
            return
        filled = []
        for queue in self.asked_for():
            end = self.ends.least(queue.topic, queue.queue_id)
            if queue.written_end >= end or not queue.files:
                continue
            try:
                take_gap(queue.name, queue.written_end, end)
                lost = queue.fill_gap(end)
            except UnitRefusedError as error:
                logger.warning("%s: where it ended is not believed: %s", queue.name, error)
                continue
            except OSError as error:
                logger.error("%s: ended at %d, which is not noted: %s", queue.name, end, error)
                return  # no put to that queue; the next open tries again
            filled.append((queue.topic, queue.queue_id, 0, end))
            logger.warning(
                "%s: ends at %d as before, and its last messages (%d) are lost: "
                "put one, or run repair, before RocketMQ starts", queue.name, end, lost,
            )  # fmt: skip
        # Pre-blanks mean nothing if a loss of power takes the units before them.
        if not filled or self._access != "write" or self.sync(filled):
            self.forget_ends()

    def forget_ends(self) -> None:
        """Drops the saved ends, which are of another log or of other queues."""
        self.ends = QueueEnds()
        if self._access == "write":
            drop_queue_ends(self._layout)

    def save_ends(self, log_end: int) -> None:
        """At a clean close, when all units of the log up to `log_end` are durable."""
        found: dict[int, int] = {}
        for queue in self.asked_for():
            if queue.loaded and queue.max_offset:
                key = queue_key(queue.topic, queue.queue_id)
                found[key] = min(queue.max_offset, found.get(key, queue.max_offset))
        stamps = queues_stamp(self._layout), index_stamp(self._layout)
        if (ends := self.ends.with_ends(log_end, found, stamps)) != self.ends:
            save_queue_ends(self._layout, ends)

    def end_for_puts(self, topic: str, queue_id: int) -> int:
        """Offset of the next message of a queue, from its units.

        Raises:
            ReadFailedError: it lacks units of messages that are in the log; another message must
                not get one of their offsets. This run does not stop cleanly now, so the next open
                rebuilds them.
            StoreBehindError: it is blocked.
        """
        self.blocked.check(topic, queue_id)
        queue = self.get(topic, queue_id)
        if queue is None:
            return 0
        if queue.written_end >= queue.known_end:
            return queue.written_end
        error = ReadFailedError(
            f"{queue.directory}: ends at {queue.written_end}, ended at {queue.known_end} when the "
            "store was closed: files of the queue, or their units, are missing; what was not "
            "trimmed of the messages is in the log"
        )
        error.add_note("close the store and open it again: that rebuilds them")
        self.degrade(error)
        raise error

    def asked_for(self) -> list[ConsumeQueue]:
        """The queues that a caller has asked for, or that were made."""
        with self._lock():
            topics = list(self._queues.values())
            return [queue for queues in topics for queue in list(queues.values()) if queue]

    def close(self) -> None:
        for queue in self.asked_for():
            queue.close()
        self._first_files.drop(closed=True)


def digest_below(queues: ConsumeQueueStore, dispatched: int) -> tuple[int, int]:
    """`ConsumeQueueStore.digest` of the queues whose first record is below `dispatched`. While an
    open catches up there may be others: those of a process that was killed, their names not on
    disk."""
    return names_digest(
        (queue.topic, queue.queue_id)
        for queue in queues.all()
        if (begin := queue.physical_begin) is not None and begin < dispatched
    )


def has_lost_any(queues: ConsumeQueueStore, digest: tuple[int, int], dispatched: int) -> bool:
    """Whether a queue is missing since a checkpoint had `digest`. A queue whose first record is at
    or above `dispatched` may be newer than the checkpoint, the last ones first; dispatching from
    there fills it. A queue without a record in the log is either very old or very new.
    """
    if queues.digest() == digest:
        return False
    begins = [(queue.physical_begin, (queue.topic, queue.queue_id)) for queue in queues.all()]
    empty = [name for begin, name in begins if begin is None]
    filled = sorted((begin, name) for begin, name in begins if begin is not None)
    by_age = [name for _, name in filled]
    believed = (
        [name for begin, name in filled if begin < dispatched],
        by_age[: digest[0]],
        [*empty, *by_age][: digest[0]],
    )
    return all(names_digest(names) != digest for names in believed)


def has_shortened(queues: ConsumeQueueStore, dispatched: int) -> bool:
    """Whether a queue ends below its saved end: units or files of it are missing. False where our
    checkpoint says that queues cover less of the log: then they are rebuilt anyway."""
    return 0 < queues.ends.log_end <= dispatched and any(
        _is_shorter(queue, queues.ends.least(queue.topic, queue.queue_id)) for queue in queues.all()
    )


def _is_shorter(queue: ConsumeQueue, least: int) -> bool:
    if not least or has_units_up_to(queue.directory, queue.file_size, least):
        return False
    return queue.written_end < least
