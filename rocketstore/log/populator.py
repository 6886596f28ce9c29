"""Populates pages of the log ahead of the writer, so that an append meets no page fault (DESIGN 7).

A thread of its own, apart from the one that creates segments: creating and populating in one thread made
stalls of 300 ms. It populates; it never writes a byte, since the writer may pass it at any time (D-11).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketstore.log.worker import Worker

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile
    from rocketstore._native.positions import Positions

__all__ = ["Populator"]

#: One call to the kernel; it cannot be interrupted, so a writer that catches up waits this long at most.
STEP_BYTES = 1 << 20


class Populator(Worker):
    """Keeps [wrote, wrote + window) populated. The window grows with what was appended since the store
    was opened: a store that is hardly written dirties hardly any page."""

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
        self._spare_start = -1

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
        self._populated = max(self._populated, wrote)
        target = wrote + window
        if self._populated >= target:
            return None
        file = self._find(self._populated)
        if file is None:
            return self._populate_spare(target)
        low = self._populated - file.start_offset
        high = min(low + STEP_BYTES, file.size)
        file.populate(low, high)
        self._populated = file.start_offset + high
        return 0

    def _populate_spare(self, target: int) -> float | None:
        """The head of the segment that is ready but not in use yet."""
        spare = self._spare()
        if spare is None or not spare.start_offset <= self._populated < spare.end_offset:
            return None
        low = self._populated - spare.start_offset
        high = min(low + STEP_BYTES, spare.size)
        spare.populate(low, high)
        self._populated = spare.start_offset + high
        return 0 if self._populated < target else None
