"""One consume queue of a store that another process writes.

No file says where the queue ends: the follower finds the end from the units themselves. A unit
counts if it is written and its record lies after the record of the unit before. In addition the
record ends below the dispatched position of a live rocketstore writer or, with any other writer,
the unit matches its record (format 15.2, equation 9).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rocketstore._native.format import queue_file
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.follow.queue_files import QueueFiles
from rocketstore.log.queues.extension_units import ExtensionUnits
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketstore.log.read.fetch_result import ReadView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy
    from numpy.typing import NDArray

    from rocketstore._native.os.mapped_file import MappedFile

__all__ = [
    "FollowerQueue",
]

logger = logging.getLogger(__name__)

#: Fewest and most units read at once, a count; the number grows while all of them are new.
FEWEST_UNITS: Final = 64
MOST_UNITS: Final = 8192


class FollowerQueue:
    """The readable part of one queue. Threads may share it. Asking for a bound moves the bounds as
    far as the read view allows."""

    def __init__(
        self,
        directory: Path,
        view: Callable[[], ReadView],
        matches: Callable[[MappedFile, int, int], bool],
        mapped: Callable[[FollowerQueue], None] = lambda _: None,
        known_end: Callable[[int, int], int] = lambda found, _: found,
    ) -> None:
        """`matches(file, position, queue_offset)`: whether a unit is that of its record.
        `mapped(queue)` is called when the queue maps its first file. `known_end(found, log_end)`:
        the end that the queue is known to have had in a log whose queues are complete up to
        `log_end`, if that is larger."""
        self._view = view
        self._matches = matches
        self._known_of = known_end
        self._known_end = 0
        self.used = False
        self.extension = ExtensionUnits.of_queue(directory)
        self._lock = SignalSafeLock("a followed queue", reentrant=False)
        self._on_mapped = mapped
        self._files = QueueFiles(directory)
        self._epoch = -1
        self._minimum_of = -1
        self._min_offset = 0
        self._max_offset = 0
        self._last_physical_offset = -1

    @property
    def file_size(self) -> int:
        return self._files.size

    @property
    def min_offset(self) -> int:
        with self._lock():
            self._refresh()
            return self._min_offset

    @property
    def max_offset(self) -> int:
        with self._lock():
            self._refresh()
            return max(self._max_offset, self._known_end)

    @property
    def written_end(self) -> int:
        """Queue offset after the last unit; units from there up to `max_offset` are missing."""
        with self._lock():
            self._refresh()
            return self._max_offset

    def locate(self, queue_offset: int) -> tuple[MappedFile, int, int] | None:
        """File, position and number of readable units there; None when the file is gone."""
        with self._lock():
            if not 0 <= queue_offset < self._max_offset:
                return None
            self.used = True
            file = self._file_of(queue_offset)
            if file is None:  # a rebuilt queue may have a new file of that name
                self._list()
                file = self._file_of(queue_offset)
            if file is None:
                return None
            position = queue_offset * UNIT_SIZE - file.start_offset
            in_file = (self._files.size - position) // UNIT_SIZE
            return file, position, min(in_file, self._max_offset - queue_offset)

    def park(self) -> bool:
        """Closes the files until they are needed. False while another thread uses the queue."""
        with self._lock(wait=False) as mine:
            if mine:
                self._files.park()
            return mine

    def close(self) -> None:
        """Closes the files; messages that were read from them stay readable."""
        with self._lock():
            self._files.close()
        self.extension.close()

    def _refresh(self) -> None:
        """Moves the bounds as far as the view allows. Does nothing when it has not changed."""
        view = self._view()
        if view.epoch == self._epoch:
            return
        if not self._files.starts:
            self._list()
            try:
                if self._files.starts:
                    self._find_end(view)
            except BaseException:
                # The next call searches again, and not from the first unit on.
                self._files.starts.clear()
                raise
            self._know_end(view)
            if not self._files.starts:
                return
        self._advance(view)
        if self._max_offset < self._known_end:
            self._know_end(view)  # the queue may have been rebuilt
        if view.minimum != self._minimum_of or self._min_offset >= self._max_offset:
            self._find_minimum(view.minimum)
        self._epoch = view.epoch

    def _know_end(self, view: ReadView) -> None:
        complete = view.visible
        if view.dispatched is not None:
            complete = min(complete, view.dispatched)
        self._known_end = max(
            self._known_of(self._max_offset, complete),
            # A file that cannot be read has a unit, or nobody had made it.
            max(self._files.cut, default=-UNIT_SIZE) // UNIT_SIZE + 1,
        )

    def _list(self) -> None:
        self._files.list()
        if self._files.starts and not self._max_offset:
            self._min_offset = self._max_offset = self._files.starts[0] // UNIT_SIZE

    def _file_of(self, queue_offset: int) -> MappedFile | None:
        was_parked = self._files.parked
        file = self._files.holding(queue_offset)
        if was_parked and file is not None:
            self._on_mapped(self)
        return file

    def _file_at_end(self) -> MappedFile | None:
        """The file for the next unit, if the writer has made it."""
        file = self._file_of(self._max_offset)
        is_next = file is None and self._max_offset * UNIT_SIZE % self._files.size == 0
        if is_next or (file is not None and self._files.drop_replaced(file)):
            self._list()
            file = self._file_of(self._max_offset)
        return file

    def _good(self, file: MappedFile, number: int, dispatched: int | None) -> bool:
        """Whether one unit of a file is written and, as far as the writer says, complete."""
        unit = queue_file.read_unit(file, number)
        if unit is None:
            return False
        physical_offset, size, _ = unit
        # Records are dispatched whole: a size that a bit makes larger says nothing of that.
        return dispatched is None or size == PRE_BLANK_SIZE or physical_offset < dispatched

    def _find_end(self, view: ReadView) -> None:
        """Called once: finds the last file that begins with a good unit, then its end by
        halving."""
        for start in sorted(self._files.starts, reverse=True):
            first = start // UNIT_SIZE
            file = self._file_of(first)
            if file is None or not self._good(file, 0, view.dispatched):
                continue
            low, high = 0, self._files.size // UNIT_SIZE
            while high - low > 1:
                middle = (low + high) // 2
                if self._good(file, middle, view.dispatched):
                    low = middle
                else:
                    high = middle
            if self._step_back(file, first, first + high):
                return

    def _step_back(self, file: MappedFile, first: int, end: int) -> bool:
        """Removes units from `end` that are not those of their records, stale or half written, then
        takes it as the end. False if no unit is left in this file."""
        while end > first and not self._matches(file, self._position(file, end - 1), end - 1):
            end -= 1
        last = -1
        if end > first:
            unit = queue_file.read_unit(file, self._position(file, end - 1) // UNIT_SIZE)
            last = -1 if unit is None else unit[0]
        self._max_offset, self._last_physical_offset = end, last
        return end > first

    def _position(self, file: MappedFile, queue_offset: int) -> int:
        return queue_offset * UNIT_SIZE - file.start_offset

    def _advance(self, view: ReadView) -> None:
        """Counts units that the writer added since the last call."""
        step = FEWEST_UNITS
        while True:
            file = self._file_at_end()
            if file is None:
                return
            position = self._max_offset * UNIT_SIZE - file.start_offset
            count = min(step, (self._files.size - position) // UNIT_SIZE)
            units = queue_file.units_array(file, position // UNIT_SIZE, count)
            taken = self._count_good(units, view.dispatched)
            # Below `dispatched` only the last unit can be half written: its record may lie beyond.
            # Without a positions page any number of units can be stale. Damage before them is not
            # removed: the reader has to report it.
            fewest = 0 if view.dispatched is None else taken - 1
            while taken > max(fewest, 0) and not self._matches(
                file, position + (taken - 1) * UNIT_SIZE, self._max_offset + taken - 1
            ):
                taken -= 1
            if not taken:
                return
            self._last_physical_offset = int(units[taken - 1]["physical_offset"])
            self._max_offset += taken
            if taken < count:
                return
            step = min(step * 8, MOST_UNITS)

    def _count_good(self, units: NDArray[numpy.void], dispatched: int | None) -> int:
        """How many units, from the first one on, are complete and rise."""
        physical = units["physical_offset"].astype("i8")
        sizes = units["size"].astype("i8")
        good = (physical >= 0) & (sizes > 0)  # written (format 6.1)
        if dispatched is not None:
            good &= (physical + sizes <= dispatched) | (sizes == PRE_BLANK_SIZE)
        before = physical.copy()
        before[1:] = physical[:-1]
        before[0] = self._last_physical_offset
        # A pre-blank fills the offset of a missing message; it has no physical offset.
        good &= (physical > before) | (sizes == PRE_BLANK_SIZE)
        return len(units) if good.all() else int(good.argmin())

    def _find_minimum(self, minimum: int) -> None:
        """First unit whose record the log still has; pre-blanks do not count (format 6.3)."""
        for start in tuple(self._files.starts):
            first = max(self._min_offset, start // UNIT_SIZE)
            end = min(self._max_offset, (start + self._files.size) // UNIT_SIZE)
            if first >= end:
                continue
            file = self._file_of(first)
            if file is None:
                continue
            units = queue_file.units_array(file, first - start // UNIT_SIZE, end - first)
            # A unit that was never written is kept: the reader reports it as damage.
            kept = (units["physical_offset"] >= minimum) & (units["size"] != PRE_BLANK_SIZE)
            if kept.any():
                self._min_offset = first + int(kept.argmax())
                # The log may have the records of files that were cut before it: the reader reports
                # them.
                while (
                    units["physical_offset"][0] > minimum
                    and self._min_offset * UNIT_SIZE - self._files.size in self._files.cut
                ):
                    self._min_offset -= self._files.size // UNIT_SIZE
                break
        else:
            self._min_offset = self._max_offset
        self._minimum_of = minimum
