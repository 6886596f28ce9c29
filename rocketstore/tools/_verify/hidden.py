"""Which records of the log have no unit: the look of an open, where the quick walk has a doubt."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.dispatch.missing_units import name_missing
from rocketstore.log.layout.listing import list_files, usual_size
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.directories import check_place
from rocketstore.log.queues.mapping_cache import MappingCache
from rocketstore.log.queues.queue_files import QueueFiles
from rocketstore.log.queues.units import UNIT_SIZE
from rocketstore.log.read.batch_queue import batch_topics
from rocketstore.tools._verify.facts import LogFacts, Scope
from rocketstore.tools._verify.holes import QueueCounts
from rocketstore.tools.report import Findings

__all__ = ["find_hidden"]


def find_hidden(
    layout: StoreLayout,
    facts: LogFacts,
    scope: Scope,
    ends: Mapping[tuple[str, int], int],
    findings: Findings,
    agreed: Collection[tuple[str, int]],
) -> QueueCounts:
    """The records that are at no unit. Those that wait for one at the end of their queue are only
    counted, as not dispatched. `ends`: where each queue ends; `agreed`: those with all their units."""
    found = QueueCounts()

    def find(offset: int) -> MappedFile | None:
        return facts.files.get(offset - offset % facts.file_size)

    def note(topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> None:
        if (topic, queue_id) not in facts.queues:
            return
        message = facts.message_at(physical_offset)
        if queue_offset >= ends.get((topic, queue_id), 0) and scope.waits(message):
            findings.counts.undispatched += 1
            return
        time = message.store_timestamp_ms
        found.add(topic, queue_id, queue_offset, (time, time))

    parts = [
        (max(scope.begin, file.start_offset), min(file.end_offset, facts.end))
        for _, file in sorted(facts.files.items())
    ]
    queues = _Queues(layout, facts.minimum, ends)
    try:
        name_missing(find, queues, parts, batch_topics(layout), note, agreed)
    finally:
        queues.close()
    return found


class _Queue(ConsumeQueue):
    """Units from `limit` on are none, nor those in files of another length than most of the queue:
    an open makes them again."""

    limit = 0

    def locate(self, queue_offset: int, /) -> tuple[MappedFile, int, int] | None:
        place = super().locate(queue_offset)
        if place is None or queue_offset >= self.limit or place[0].size != self.file_size:
            return None
        return place[0], place[1], min(place[2], self.limit - queue_offset)


class _Queues:
    """Each queue with the length that its own files have."""

    def __init__(
        self, layout: StoreLayout, minimum: int, ends: Mapping[tuple[str, int], int]
    ) -> None:
        self._layout = layout
        self._minimum = minimum
        self._ends = ends
        self._mapped = MappingCache()
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        found = self._queues.get((topic, queue_id))
        directory = self._layout.queue_directory(topic, queue_id)
        if found is not None or not directory.is_dir():
            return found
        size = usual_size(list_files(directory)) or UNIT_SIZE
        files = QueueFiles(
            directory, "read", size,
            tmp_directory=self._layout.tmp, make_place=check_place, mapped=self._mapped.mapped,
        )  # fmt: skip
        new = _Queue(topic, queue_id, files, lambda: self._minimum)
        new.limit = self._ends.get((topic, queue_id), 0)
        self._queues[topic, queue_id] = new
        return new

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()
