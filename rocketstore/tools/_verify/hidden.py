"""Which records of the log have no unit, one by one: a second walk, where there are such."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy

from rocketstore._native.format import queue_file
from rocketstore._native.format.scanner import SearchBudget, read_message, resynchronise
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout.listing import list_files, usual_size
from rocketstore.log.queues.multi_dispatch import is_multi_dispatched, multi_dispatch_queues
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketstore.tools._verify.holes import QueueCounts
from rocketstore.values.system_flags import IN_QUEUES, INNER_BATCH, TRANSACTION_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from rocketstore._native.format.message import Message
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.tools._verify.facts import LogFacts, Scope

__all__ = ["find_hidden"]


def find_hidden(
    layout: StoreLayout, facts: LogFacts, scope: Scope, ends: Mapping[tuple[str, int], int]
) -> QueueCounts:
    """The records that are at no unit, but for those that wait for one at the end of their queue.

    `ends`: the queues that are looked at, and where each ends.
    """
    units = {place: _Units(layout.queue_directory(*place), end) for place, end in ends.items()}
    following = dict.fromkeys(ends, 0)
    found = QueueCounts()
    for message in _records(facts, scope):
        if message.sys_flag & TRANSACTION_TYPE not in IN_QUEUES or message.sys_flag & INNER_BATCH:
            continue
        own = (message.topic, message.queue_id, message.queue_offset)
        further = multi_dispatch_queues(message) if is_multi_dispatched(message.topic) else []
        for topic, queue_id, queue_offset in (own, *further):
            place = topic, queue_id
            if place not in units or queue_offset < following[place]:
                continue  # an offset that was given twice: the first one has the unit
            following[place] = queue_offset + 1
            if units[place].at(queue_offset) == message.physical_offset:
                continue
            if queue_offset >= units[place].end and scope.waits(message):
                continue
            time = message.store_timestamp_ms
            found.add(topic, queue_id, queue_offset, (time, time))
    return found


def _records(facts: LogFacts, scope: Scope) -> Iterator[Message]:
    """All that have a whole frame."""
    for _, segment in sorted(facts.files.items()):
        position, budget = max(0, scope.begin - segment.start_offset), SearchBudget()
        end = min(segment.size, facts.end - segment.start_offset)
        while position < end:
            try:
                message = read_message(segment, position, segment.size, verify=0)
            except CorruptRecordError:
                found = resynchronise(segment, position + 1, end, budget=budget)
                if found is None:
                    break
                position = found
                continue
            yield message
            position += message.size


class _Units:
    """The physical offsets of one queue, a file at a time."""

    def __init__(self, directory: Path, end: int) -> None:
        self._directory = directory
        files = list_files(directory)
        self._size = usual_size(files) or UNIT_SIZE
        self._starts = {start for start, size in files if size == self._size}
        self._start = -1
        self._offsets: NDArray[numpy.int64] = numpy.zeros(0, numpy.int64)
        self.end = end

    def at(self, queue_offset: int) -> int:
        """Where the record of a unit lies; -1 without a unit."""
        position = queue_offset * UNIT_SIZE
        start = position - position % self._size
        if queue_offset >= self.end or start not in self._starts:
            return -1
        if start != self._start:
            self._load(start)
        number = (position - start) // UNIT_SIZE
        return int(self._offsets[number]) if number < len(self._offsets) else -1

    def _load(self, start: int) -> None:
        self._start = start
        self._offsets = numpy.zeros(0, numpy.int64)
        path = str(self._directory / f"{start:020d}")
        try:
            file = MappedFile.open(path, start, self._size, "read")
        except (FileNotFoundError, ValueError):
            return
        with closing(file):
            whole = self._size - self._size % UNIT_SIZE
            units = numpy.frombuffer(file.read(0, whole), queue_file.UNIT_FIELDS)
            none = (units["size"] <= 0) | (units["size"] == PRE_BLANK_SIZE)
            offsets = units["physical_offset"].astype(numpy.int64)
            self._offsets = numpy.where(none, numpy.int64(-1), offsets)
