"""Populates pages of the log before the appender comes to them, so that it meets no page fault.

It has a thread of its own: making segments and populating in one thread caused stalls of 300 ms. It
never writes a byte, since the appender may pass it at any time (D-11).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketstore._native.append.page_populator import PagesAhead
from rocketstore.errors import StoreClosedError
from rocketstore.log.worker import Worker

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore._native.sync.positions import Positions

__all__ = ["Populator"]

logger = logging.getLogger(__name__)


class Populator(Worker):
    """Chooses the file to populate; `PagesAhead` decides how many pages, and when.

    `find` returns the segment of a physical offset, `spare` the one that is ready and not in use
    yet. The log wakes it at its marks; it does not poll.
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
        self.pages = PagesAhead(positions, window_bytes)

    @property
    def populated(self) -> int:
        """Physical offset up to which pages were populated."""
        return self.pages.populated

    def expect_put(self) -> None:
        """The caller expects the first put: populates the pages that it needs."""
        self.pages.expect_put()
        self.wake()

    def step(self) -> float | None:
        """Works on one file. If its pages cannot be populated only speed is lost, and the store
        goes on: the appender faults the pages of this file itself."""
        offset = max(self.pages.populated, self._positions.wrote)
        file = self._find(offset) or self._spare()
        if file is None or not file.start_offset <= offset < file.end_offset:
            return None
        try:
            self.pages.serve(self.signal, file)
        except (OSError, StoreClosedError) as error:
            logger.warning("%s: pages cannot be made ready ahead: %s", file.path, error)
            self.pages.skip_to(file.end_offset)
        return 0

    def stop(self, timeout_s: float | None = None) -> bool:
        self.pages.paused = True
        return super().stop(timeout_s)
