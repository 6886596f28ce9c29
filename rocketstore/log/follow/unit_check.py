"""Compares units with their records (format 15.2, equation 9), where no writer says how far units
are complete."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketstore._native.format.queue_reader import read_units
from rocketstore.errors import CorruptRecordError
from rocketstore.log.read.batch_reader import record_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.read.batch_queue import BatchUnit
    from rocketstore.log.read.source import ReadSource

__all__ = [
    "UnitCheck",
]

logger = logging.getLogger(__name__)


class UnitCheck:
    """Compares units of one store with their records, and calls `found` for each that matches."""

    __slots__ = ("_found", "_source")

    def __init__(self, source: ReadSource, found: Callable[[], None]) -> None:
        self._source = source
        self._found = found

    def units_of(self, topic: str, queue_id: int) -> Callable[[MappedFile, int, int], bool]:
        """The check for one consume queue, called with file, position and queue offset."""
        raw = topic.encode()

        def matches(file: MappedFile, position: int, queue_offset: int) -> bool:
            source = self._source
            try:
                read_units(
                    file,
                    position,
                    1,
                    source.segments(),
                    source.segment_size,
                    topic=raw,
                    queue_id=queue_id,
                    first_queue_offset=queue_offset,
                    log_minimum=source.minimum(),
                    limit_offset=source.visible(),
                    verify=0,
                    tags_codes=None,
                )
            except CorruptRecordError:
                return False
            self._found()
            return True

        return matches

    def batch_unit(self, topic: str, queue_id: int, unit: BatchUnit) -> bool:
        """Whether a unit of a batch queue is that of its record."""
        try:
            record_of(self._source, unit, topic, queue_id, verify=0)
        except CorruptRecordError:
            return False
        self._found()
        return True
