"""Populates pages of the log ahead of the writer, so that an append meets no page fault.

A thread of its own, apart from the one that creates segments: creating and populating in one thread made
stalls of 300 ms. It populates; it never writes a byte, since the writer may pass it at any time (D-11).
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
    """Which file pages are made ready in; how many, and when, is `PagesAhead`.

    `find` gives the segment of a physical offset, `spare` the one that is ready but not in use yet.
    Whoever appends wakes it now and then; it does not poll.
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
        """The first put is near, and will not wait for a page that nobody has read."""
        self.pages.expect_put()
        self.wake()

    def step(self) -> float | None:
        """As long as one file is worked on. When its pages cannot be had only speed is lost, so the store goes on:
        the writer meets the pages of this file as they come."""
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
