"""Populates pages of the log ahead of the writer, so that an append meets no page fault (DESIGN 7).

A thread of its own, apart from the one that creates segments: creating and populating in one thread made
stalls of 300 ms. It populates; it never writes a byte, since the writer may pass it at any time (D-11).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rocketstore._native.populating import populate_ahead
from rocketstore.errors import StoreClosedError
from rocketstore.log.worker import Worker

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile
    from rocketstore._native.positions import Positions

__all__ = ["Populator"]

logger = logging.getLogger(__name__)

#: Nothing is done for a window smaller than this.
STEP_BYTES: Final = 1 << 20
#: One call to the kernel where there is no hurry, and the seconds between two: who was woken meanwhile on this
#: processor waits until the call is done.
EASY_STEP_BYTES: Final = 64 << 10
EASY_PAUSE_S: Final = 0.0005
#: Up to here, in bytes a second, there is no hurry; small steps reach twice as much.
EASY_RATE: Final = 64 << 20
#: The time over which a rate says that there is a hurry, and that there is none any more: a fast writer, too,
#: waits for a processor now and then.
RATE_S: Final = 0.0001
CALM_S: Final = 0.02


class Populator(Worker):
    """Keeps [wrote, wrote + window) populated. The window grows with what was appended since the store
    was opened: a store that is hardly written dirties hardly any page.

    Beside a slow writer pages are made ready one by one and in small steps.

    Beside a fast one as fast as it goes, and without the GIL: a writer that puts one by one gives that away
    each 5 ms only, so a step of 1 MiB in Python made 200 MiB a second at most, and half of the pages were left
    to the writer (one by one, 100 B, 3 GiB cold: 0.92 and 1.27 million puts a second; now 1.49 and 1.40). In
    pages of 2 MiB where the file system has some: the kernel would make its whole read-ahead ready at the first
    touch else (8 MiB, from 2.6 to 35 ms in which nobody else has the processor), and each small page that a
    flush protects interrupts the other processors. Queues and index beside a writer of 1 M/s, 100 B, were
    behind at p99 by 13 to 50 ms without; a trial in turns gave 2.6 to 5.3 in three runs and 227 in one.

    `find` gives the segment of a physical offset, `spare` the one that is ready but not in use yet.
    Whoever appends wakes it once for every step or more; it does not poll.
    """

    def __init__(
        self,
        positions: Positions,
        find: Callable[[int], MappedFile | None],
        spare: Callable[[], MappedFile | None],
        on_failure: Callable[[BaseException], None],
        *,
        window_bytes: int,
    ) -> None:
        super().__init__("rocketstore-populator", on_failure)
        self._positions = positions
        self._find = find
        self._spare = spare
        self._window_bytes = window_bytes
        self._opened_at = positions.wrote
        self._populated = positions.wrote
        self._hurried = False
        self._rated = (time.monotonic(), positions.wrote)  # when and where the rate is taken from
        self._slept = True
        self._large = -1  # start of the file that is advised to have large pages

    @property
    def populated(self) -> int:
        """Physical offset up to which pages were populated."""
        return self._populated

    def step(self) -> float | None:
        """One call to the kernel, or nothing to do until woken."""
        wrote = self._positions.wrote
        window = min(self._window_bytes, wrote - self._opened_at)
        if window < STEP_BYTES:
            return None
        self._populated = max(self._populated, wrote)  # what the writer has touched is present
        if self._populated >= wrote + window:
            self._slept = True
            return None
        first, self._slept = self._slept, False
        self._note_rate(wrote)
        file = self._find(self._populated) or self._spare()
        if file is None or not file.start_offset <= self._populated < file.end_offset:
            return None
        self._populated = self._populate(file, window)
        return 0 if self._hurried or first else EASY_PAUSE_S

    def _note_rate(self, wrote: int) -> None:
        now = time.monotonic()
        before, begin = self._rated
        hurried = now - before >= RATE_S and wrote - begin > EASY_RATE * (now - before)
        if hurried or now - before >= CALM_S:
            self._hurried, self._rated = hurried, (now, wrote)

    def _populate(self, file: MappedFile, window: int) -> int:
        """Up to where. When the pages cannot be had only speed is lost, so the store goes on: the writer meets
        the pages of this file as they come."""
        try:
            self._advise_size(file)
            if self._hurried:
                return populate_ahead(file, self._positions, self._populated, window)
            low = self._populated - file.start_offset
            high = min(low + EASY_STEP_BYTES, file.size)
            file.advise("random")  # for the moment: readers of this file want read-ahead
            try:
                file.populate(low, high)
            finally:
                file.advise("normal")
        except (OSError, StoreClosedError) as error:
            logger.warning("%s: pages cannot be made ready ahead: %s", file.path, error)
            return file.end_offset
        return file.start_offset + high

    def _advise_size(self, file: MappedFile) -> None:
        """Beside a slow writer a large page would be made, and written, for a few messages."""
        if self._hurried and self._large != file.start_offset:
            file.advise("hugepage")
            self._large = file.start_offset
        elif not self._hurried and self._large == file.start_offset:
            file.advise("nohugepage")
            self._large = -1
