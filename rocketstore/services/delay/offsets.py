"""How far delivery has come: when it is stored, and what must be on disk before."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.log.layout.log_place import place_at, stands
from rocketstore.services.delay import progress
from rocketstore.services.delay.progress import Progress
from rocketstore.services.delay.waiting import Level, waiting_queues

__all__ = ["Stored", "StoredOffsets", "known_progress"]

logger = logging.getLogger(__name__)

#: What is stored.
_What = TypeVar("_What")
#: Offsets are stored this long after a delivery, seconds.
SAVE_AFTER_S: Final = 1.0


class Stored(Generic[_What]):
    """What is in a file, and since when it lacks a delivery. One thread uses it."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._lacks_since_s: float | None = None

    @property
    def begin(self) -> int | None:
        """Where in the log the copies begin that the file does not know; None: nobody knows.
        OSError where the file cannot be read."""
        raise NotImplementedError

    def write(self, what: _What, end: int) -> None:
        """Writes the file; copies that it does not know will lie at or after `end`. OSError."""
        raise NotImplementedError

    def note_change(self) -> None:
        if self._lacks_since_s is None:
            self._lacks_since_s = time.monotonic()

    def keep_in_window(self, what: _What) -> None:
        """No copy may lie so far from the stored offsets that the next start would not find it.

        Raises: as `save`.
        """
        begin = self.begin
        if begin is None or self._engine.positions.wrote - begin > progress.WINDOW_BYTES:
            self.save(what)

    def save_in_time(self, what: _What) -> float | None:
        """Stores it when it is time; gives the seconds until then, None when it is stored."""
        if self._lacks_since_s is None:
            return None
        left_s = self._lacks_since_s + SAVE_AFTER_S - time.monotonic()
        if left_s > 0:
            return left_s
        try:
            self.save(what)
        except OSError as error:
            logger.warning("%s: the offsets of delays are not stored: %s", self._engine.path, error)
            return SAVE_AFTER_S
        return None

    def save(self, what: _What) -> None:
        """Stores it, once all that it speaks of is on disk.

        Raises:
            OSError: the file cannot be written. DurabilityTimeoutError, which is one: the flush
            takes
                too long.
            StoreFailedError: a flush failed.
        """
        engine = self._engine
        end = engine.positions.wrote
        engine.commit_log.log.request_flush(end)
        engine.wait_flushed(end, None)
        self.write(what, end)
        self._lacks_since_s = None


class StoredOffsets(Stored[Mapping[int, "Level"]]):
    """The offsets of the levels: `config/delayOffset.json`."""

    def __init__(self, engine: WritingEngine) -> None:
        super().__init__(engine)
        self._progress: Progress | None = None

    @property
    def progress(self) -> Progress:
        """What the file says, read when it is first asked for. OSError where it cannot be read."""
        if self._progress is None:
            self._progress = known_progress(self._engine)
        return self._progress

    @property
    def begin(self) -> int | None:
        return self.progress.begin

    def write(self, what: Mapping[int, Level], end: int) -> None:
        known = self.progress
        offsets = {queue_id: level.next for queue_id, level in what.items()}
        undelivered = {queue_id: sorted(level.undelivered) for queue_id, level in what.items()}
        known.offsets = {**known.offsets, **offsets}
        known.undelivered = {**known.undelivered, **undelivered}
        before = known.begin, known.log
        known.begin, known.log = end, place_at(self._engine.reader.source.segments(), end)
        try:
            progress.save(self._engine.layout, known)
        except BaseException:
            known.begin, known.log = before
            raise


def known_progress(engine: Engine) -> Progress:
    """What the file of the levels says; nothing, with a line in the log, where that is of another
    log. OSError where it cannot be read."""
    found = progress.load(engine.layout)
    if why := _contradiction(engine, found):
        logger.warning(
            "%s: the stored offsets of delay levels are of another log: %s; what was delivered is "
            "found in this one",
            *(engine.path, why),
        )
        return progress.Progress(rest=found.rest)
    return found


def _contradiction(engine: Engine, found: Progress) -> str:
    """What the log has not of what a file says; "" for nothing. A file without a place is a
    broker's, or of an older release."""
    source, end = engine.reader.source, engine.reader.source.visible()
    if found.log is not None and stands(source.segments(), found.log) is False:
        return f"the bytes below {found.log.end} differ"
    if found.begin is not None and found.begin > max(end, engine.positions.wrote):
        return f"it had {found.begin} bytes, and has {end}"
    for queue in waiting_queues(engine.reader):
        offset, most = found.offsets.get(queue.queue_id, 0), queue.bounds(catch_up=False)[1]
        if offset > most and engine.positions.dispatched >= end:
            level = queue.queue_id + 1
            return f"level {level} is stored as delivered up to {offset}, and ends at {most}"
    return ""
