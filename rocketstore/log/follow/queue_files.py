"""The files of one consume queue that another process writes: listed, mapped and replaced."""

from __future__ import annotations

import bisect
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketstore._native.format.queue_reader import read_units
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout.listing import list_files, usual_size
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.queues.units import UNIT_SIZE
from rocketstore.log.read.batch_queue import BatchUnit
from rocketstore.log.read.batch_reader import record_of
from rocketstore.log.read.source import ReadSource

__all__ = ["QueueFiles", "UnitCheck"]

logger = logging.getLogger(__name__)


#: Time between two checks for a file that a rebuilt one replaced (D-13), seconds.
RECHECK_S: Final = 1.0


class QueueFiles:
    """Which files a queue has, and the mapped ones. The lock of the queue guards all of it."""

    def __init__(self, directory: Path) -> None:
        #: Length of each file, bytes; 0 until a file was listed.
        self.size = 0
        #: Starts of whole files, in order.
        self.starts: list[int] = []
        #: Starts of files that lost their end, or their name; they are not read.
        self.cut: set[int] = set()
        self._directory = directory
        self._mapped: dict[int, MappedFile] = {}
        self._rechecked = time.monotonic()

    def list(self) -> None:
        """Lists the files; their size is that of the files themselves (format 1.2).
        What a file has after its last unit is not looked at."""
        found = list_files(self._directory)
        wanted = self.size or (usual_size(found) or 0) // UNIT_SIZE * UNIT_SIZE
        if wanted == 0:
            return
        self.size = wanted
        whole = {start for start, size in found if start % wanted == 0 and size >= wanted}
        self.starts = sorted(whole)
        self.cut = {start - start % wanted for start, size in found if size} - whole
        for start in set(self._mapped).difference(self.starts):
            self._mapped.pop(start).close()

    def holding(self, queue_offset: int) -> MappedFile | None:
        """The file for a queue offset; None if it was not listed, or is gone since."""
        position = queue_offset * UNIT_SIZE
        start = position - position % self.size
        file = self._mapped.get(start)
        at = bisect.bisect_left(self.starts, start)  # there may be many
        if file is None and start in self.starts[at : at + 1]:
            path = self._directory / segment_name(start)
            try:
                file = MappedFile.open(str(path), start, self.size, "read")
                file.close_descriptor()
            except (FileNotFoundError, ValueError):
                # The writer removed or cut it after the listing.
                del self.starts[at]
                return None
            file.advise("random")
            self._mapped[start] = file
        return file

    def drop_replaced(self, file: MappedFile) -> bool:
        """Unmaps a file if a rebuilt one has its name now; checks that every `RECHECK_S`."""
        now = time.monotonic()
        if now <= self._rechecked + RECHECK_S:
            return False
        self._rechecked = now
        path = self._directory / segment_name(file.start_offset)
        try:
            replaced = os.stat(path).st_ino != file.inode
        except FileNotFoundError:
            replaced = True
        if replaced:
            logger.info("%s was replaced: reading the new file", path)
            self._mapped.pop(file.start_offset).close()
        return replaced

    @property
    def parked(self) -> bool:
        """Whether no file is mapped."""
        return not self._mapped

    def park(self) -> None:
        """Unmaps the files until they are needed; readers that hold one keep it."""
        self._mapped.clear()

    def close(self) -> None:
        for file in self._mapped.values():
            file.close()
        self._mapped.clear()
        self.starts.clear()


# Compares units with their records (format 15.2, equation 9), where no writer says how far units
# are complete.


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
