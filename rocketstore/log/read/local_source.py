"""The store of this process as a source for readers (`reader.ReadSource`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rocketstore.errors import StoreBehindError
from rocketstore.log.read.source import Holders

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore._native.sync.futex import EventCount
    from rocketstore._native.sync.positions import Positions
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
    from rocketstore.log.read.batch_queue import BatchQueue
    from rocketstore.log.read.batch_queues import BatchQueues

__all__ = ["StoreSource"]


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
