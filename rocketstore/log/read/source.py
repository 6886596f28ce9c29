"""The protocol of a store that a reader works on, whichever process writes it."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from rocketstore.errors import StoreBehindError

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore._native.sync.futex import EventCount
    from rocketstore._native.sync.positions import Positions
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
    from rocketstore.log.queues.extension_units import ExtensionUnits
    from rocketstore.log.read.batch_queue import BatchQueue, BatchQueues

__all__ = ["Arrivals", "Holder", "Holders", "QueueView", "ReadSource", "StoreSource", "segment_at"]


T = TypeVar("T")


class QueueView(Protocol):
    """One consume queue, as a reader sees it. Offsets are queue offsets."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    @property
    def written_end(self) -> int:
        """Queue offset after the last unit; units from there up to `max_offset` are missing."""
        ...

    @property
    def file_size(self) -> int: ...

    @property
    def extension(self) -> ExtensionUnits:
        """The extension units of the queue, if it has any."""
        ...

    def locate(self, queue_offset: int, /) -> tuple[MappedFile, int, int] | None:
        """File, position of the unit in it, and how many units can be read from there in this file.
        None when the file that should hold the unit is not there."""
        ...


class Arrivals(Protocol):
    """Counts arrivals, so that a wait that begins late cannot miss one."""

    @property
    def count(self) -> int: ...

    def wait(self, seen: int, timeout_ms: int | None, /) -> int: ...


class Holder(Protocol):
    """A consumer, which keeps messages that it fetched and did not hand out."""

    def release(self, begin_offset: int, /) -> None: ...


class Holders:
    """Those that live. Any thread may add one, and release."""

    def __init__(self) -> None:
        self._living: dict[int, weakref.ref[Holder]] = {}

    def add(self, holder: Holder) -> None:
        key, living = id(holder), self._living

        def remove(gone: weakref.ref[Holder]) -> None:
            if living.get(key) is gone:
                del living[key]

        living[key] = weakref.ref(holder, remove)

    def release(self, begin_offset: int) -> None:
        """The log begins at this physical offset now: none of them keeps a file below."""
        for reference in list(self._living.values()):
            holder = reference()
            if holder is not None:
                holder.release(begin_offset)


class ReadSource(Protocol):
    """A store, as readers see it."""

    #: The consumers that read from it. A source that takes the place of another gets its own.
    holders: Holders

    @property
    def segment_size(self) -> int: ...

    @property
    def verify(self) -> int:
        """Checksums that are tested in each record handed out: `RS_VERIFY_*` bits."""
        ...

    @property
    def arrival(self) -> Arrivals: ...

    def check(self, *, now: bool = False) -> None:
        """Raises `StoreClosedError` when nothing can be read any more, `StoreReplacedError` when
        another store has its place; `now`: as far as the files show at this moment."""
        ...

    def topics(self) -> Sequence[str]: ...

    def queues(self, topic: str, /) -> Sequence[int]: ...

    def queue(self, topic: str, queue_id: int, /) -> QueueView | BatchQueue | None: ...

    def segments(self) -> tuple[MappedFile, ...]:
        """The log's files in order; a snapshot. Files can be missing where damage took them."""
        ...

    def minimum(self) -> int:
        """The least physical offset that is kept."""
        ...

    def visible(self) -> int:
        """The high watermark: readers may see messages below this physical offset (D-32)."""
        ...

    def time_breaks(self) -> Sequence[tuple[int, int]]:
        """Ranges of physical offsets in which store times may fall from one record to the next."""
        ...

    def catch_up(self) -> None:
        """Brings the queues up to `visible`, if this process has the dispatcher."""
        ...

    def again(self, look: Callable[[], T], error: Exception, /) -> T:
        """What `look` finds, which has met damage. Raises `error` where no other process writes here: it
        would be the same."""
        ...


def segment_at(
    segments: tuple[MappedFile, ...], segment_size: int, physical_offset: int
) -> MappedFile | None:
    """The file that holds a physical offset: by arithmetic, by halving where files are missing.

    There is no fallback to another file (K-46).
    """
    if not segments:
        return None
    index = (physical_offset - segments[0].start_offset) // segment_size
    if index >= len(segments) or segments[max(0, index)].start_offset > physical_offset:
        index = bisect_right(segments, physical_offset, key=_start_of) - 1
    file = segments[max(0, index)]
    return file if file.start_offset <= physical_offset < file.start_offset + file.size else None


def _start_of(file: MappedFile) -> int:
    return file.start_offset


# ---- The store of this process as a source for readers (`reader.ReadSource`) ----


class StoreSource:
    """Segments and queues of one store. A reader that is ahead of dispatch runs the dispatcher
    itself."""

    def __init__(
        self,
        log: MappedFileQueue,
        queues: ConsumeQueueStore,
        dispatch_up_to: Callable[[int], object],
        positions: Positions,
        arrival: EventCount,
        *,
        batches: BatchQueues,
        verify: int,
        check: Callable[[], None],
        time_breaks: Sequence[tuple[int, int]],
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatch_up_to = dispatch_up_to
        self._positions = positions
        self._arrival = arrival
        self._batches = batches
        self._verify = verify
        self._check = check
        self._time_breaks = time_breaks
        self.holders = Holders()

    @property
    def segment_size(self) -> int:
        return self._log.file_size or 1

    @property
    def verify(self) -> int:
        return self._verify

    @property
    def arrival(self) -> EventCount:
        return self._arrival

    def check(self, *, now: bool = False) -> None:
        self._check()

    def topics(self) -> Sequence[str]:
        self.catch_up()
        return [*self._queues.topics(), *self._batches.topics()]

    def queues(self, topic: str, /) -> Sequence[int]:
        try:
            self.catch_up()
        except StoreBehindError:
            # The queues that are there are read up to where their units end; then the read raises.
            if not self._queues.queues(topic):
                raise
        return self._queues.queues(topic) or self._batches.queues(topic)

    def queue(self, topic: str, queue_id: int, /) -> ConsumeQueue | BatchQueue | None:
        self._queues.blocked.check(topic, queue_id)
        return self._queues.get(topic, queue_id) or self._batches.queue(topic, queue_id)

    def segments(self) -> tuple[MappedFile, ...]:
        return self._log.files

    def minimum(self) -> int:
        files = self._log.files
        return files[0].start_offset if files else self._positions.wrote

    def visible(self) -> int:
        return self._positions.visible

    def time_breaks(self) -> Sequence[tuple[int, int]]:
        """The ranges known at the open; no other comes while the store is open."""
        return self._time_breaks

    def catch_up(self) -> None:
        """Dispatches what is visible, so that a process reads its own writes at once."""
        if self._positions.dispatched < self._positions.visible:
            self._dispatch_up_to(self._positions.visible)

    def again(self, look: Callable[[], T], error: Exception, /) -> T:
        raise error
