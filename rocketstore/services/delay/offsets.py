"""The stored offsets of delivery: when they are stored, and what must be on disk before."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rocketstore.errors import BackpressureError
from rocketstore.services.delay import progress

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.services.delay.level import Level
    from rocketstore.services.delay.progress import Progress

__all__ = ["StoredOffsets"]

logger = logging.getLogger(__name__)

#: Offsets are stored this long after a delivery, seconds.
SAVE_AFTER_S: Final = 1.0


class StoredOffsets:
    """What is in the file, and since when it lacks a delivery. One thread uses it."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._progress: Progress | None = None
        self._lacks_since_s: float | None = None

    @property
    def progress(self) -> Progress:
        """What the file says, read when it is first asked for. OSError where it cannot be read."""
        if self._progress is None:
            self._progress = progress.load(self._engine.layout)
        return self._progress

    def note_change(self) -> None:
        if self._lacks_since_s is None:
            self._lacks_since_s = time.monotonic()

    def keep_in_window(self, levels: Mapping[int, Level]) -> None:
        """No copy may lie so far from the stored offsets that the next start would not find it.

        Raises: as `save`.
        """
        begin = self.progress.begin
        if begin is None or self._engine.positions.wrote - begin > progress.WINDOW_BYTES:
            self.save(levels)

    def save_in_time(self, levels: Mapping[int, Level]) -> float | None:
        """Stores the offsets when it is time; gives the seconds until then, None when they are
        stored."""
        if self._lacks_since_s is None:
            return None
        left_s = self._lacks_since_s + SAVE_AFTER_S - time.monotonic()
        if left_s > 0:
            return left_s
        try:
            self.save(levels)
        except (OSError, BackpressureError) as error:
            logger.warning("%s: the offsets of delays are not stored: %s", self._engine.path, error)
            return SAVE_AFTER_S
        return None

    def save(self, levels: Mapping[int, Level]) -> None:
        """Stores the offsets, once all that they speak of is on disk.

        Raises:
            OSError: the file cannot be written. BackpressureError: the flush takes too long.
            StoreFailedError: a flush failed.
        """
        engine, known = self._engine, self.progress
        end = engine.positions.wrote
        offsets = {queue_id: level.next for queue_id, level in levels.items()}
        undelivered = {queue_id: sorted(level.undelivered) for queue_id, level in levels.items()}
        engine.commit_log.log.request_flush(end)
        limit_ms = engine.config.sync_flush_timeout_ms
        if not engine.commit_log.log.wait(end, 2, limit_ms):
            raise BackpressureError(f"the log is not on disk up to {end} after {limit_ms} ms")
        known.offsets = {**known.offsets, **offsets}
        known.undelivered = {**known.undelivered, **undelivered}
        before, known.begin = known.begin, end
        try:
            progress.save(engine.layout, known)
        except BaseException:
            known.begin = before
            raise
        self._lacks_since_s = None
