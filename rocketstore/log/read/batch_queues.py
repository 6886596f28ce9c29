"""All batch queues of a store (format 6.6); a broker may keep them instead of plain consume queues.

They are only read. A topic has plain queues or batch queues: RocketMQ does not load a store that
has both for one topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.layout.paths import is_safe_name
from rocketstore.log.queues.directories import directory_names, is_queue_id
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.log.read.read_view import ReadView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.read.batch_queue import BatchUnit

__all__ = ["BatchQueues", "batch_directory", "batch_topics", "batches_end"]


class BatchQueues:
    """All batch queues of a store, opened when they are asked for. Any thread may use it."""

    def __init__(
        self,
        layout: StoreLayout,
        view: Callable[[], ReadView],
        matches: Callable[[str, int, BatchUnit], bool] | None = None,
    ) -> None:
        """`matches(topic, queue_id, unit)`: whether a unit is that of its record (`BatchQueue`)."""
        self._layout = layout
        self._view = view
        self._matches = matches
        self._lock = SignalSafeLock("the table of batch queues")
        self._queues: dict[tuple[str, int], BatchQueue] = {}

    def topics(self) -> list[str]:
        return batch_topics(self._layout)

    def queues(self, topic: str) -> list[int]:
        if not is_safe_name(topic):
            return []
        names = directory_names(self._layout.batch_consume_queue / topic)
        return sorted(int(name) for name in names if is_queue_id(name))

    def queue(self, topic: str, queue_id: int) -> BatchQueue | None:
        with self._lock():
            known = self._queues.get((topic, queue_id))
            if known is None and is_safe_name(topic):
                directory = batch_directory(self._layout, topic, queue_id)
                if directory.is_dir():
                    new = BatchQueue(directory, self._view, self._matches_in(topic, queue_id))
                    known = self._queues.setdefault((topic, queue_id), new)
            return known

    def _matches_in(self, topic: str, queue_id: int) -> Callable[[BatchUnit], bool] | None:
        matches = self._matches
        return None if matches is None else lambda unit: matches(topic, queue_id, unit)

    def close(self) -> None:
        """Closes all files and forgets their queues."""
        with self._lock():
            for queue in self._queues.values():
                queue.close()
            self._queues.clear()


def batches_end(layout: StoreLayout) -> int:
    """End of the last record that any batch queue has; -1 when there is no unit at all."""
    everything = ReadView(0, 0, (1 << 64) - 1, 0)
    batches = BatchQueues(layout, lambda: everything)
    end = -1
    for topic in batches.topics():
        for queue_id in batches.queues(topic):
            queue = batches.queue(topic, queue_id)
            end = end if queue is None else max(end, queue.physical_end)
        batches.close()
    return end


def batch_topics(layout: StoreLayout) -> list[str]:
    """Topics whose queues are batch queues."""
    return directory_names(layout.batch_consume_queue)


def batch_directory(layout: StoreLayout, topic: str, queue_id: int) -> Path:
    """The directory of a batch queue's files."""
    return layout.batch_consume_queue / topic / str(queue_id)
