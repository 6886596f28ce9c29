"""How many bytes may be pending in a log, and how a put waits for room (D-14, D-15)."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketstore._native.append.appender import Log
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions
from rocketstore.errors import BackpressureError
from rocketstore.log.commitlog.running_flags import RunningFlags

__all__ = ["LogLimits", "log_slow_wait"]

logger = logging.getLogger(__name__)

#: Wait of a put for a segment or for room, ms; a longer one is logged (semantics 0).
SLOW_MS = 500
#: Interval at which a put that waits for one bound looks at the other, ms.
LOOK_EVERY_MS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """Bounds that a put meets: bytes that are written and not flushed, bytes that are visible and
    not dispatched, and how long it waits for either or for a segment."""

    max_unflushed_bytes: int
    max_undispatched_bytes: int
    max_wait_ms: int

    def wait_for_room(
        self, positions: Positions, log: Log, arrival: EventCount, flags: RunningFlags
    ) -> None:
        """Waits until a bound on pending bytes may have moved.

        Raises:
            BackpressureError: neither has, within `max_wait_ms`.
        """
        wrote, flushed, dispatched = positions.wrote, positions.flushed, positions.dispatched
        if flushed >= wrote and dispatched >= wrote:
            return  # all was done since the put was refused, and no signal would follow
        # The dispatcher only sees what is visible, so a full flush bound may hold up both.
        undispatched = positions.visible - dispatched
        by_dispatch = flushed >= wrote or undispatched * 2 > self.max_undispatched_bytes
        signal = arrival if by_dispatch else log.progress
        seen = signal.count
        log.dispatch_signal.notify()
        if flushed < wrote:
            log.request_flush(wrote)
        began = time.monotonic()
        left_ms = self.max_wait_ms
        # Either of the two makes room, and a thread waits for one only: the other is looked at.
        while positions.flushed == flushed and positions.dispatched == dispatched:
            if left_ms <= 0:
                stuck = self._stuck_at(positions, by_dispatch=by_dispatch)
                raise BackpressureError(
                    f"no room after {self.max_wait_ms} ms: wrote = {wrote}, stuck at {stuck}; "
                    f"the disk or the dispatcher does not keep up ({flags})"
                )
            if signal.wait(seen, min(left_ms, LOOK_EVERY_MS)) != seen:
                break  # a store that fails or closes signals, too: the next try reports it
            left_ms = self.max_wait_ms - int((time.monotonic() - began) * 1000)

    def _stuck_at(self, positions: Positions, *, by_dispatch: bool) -> str:
        name, value, bound = (
            ("dispatched", positions.dispatched, self.max_undispatched_bytes)
            if by_dispatch
            else ("flushed", positions.flushed, self.max_unflushed_bytes)
        )
        return f"{name} = {value} (bound {bound} bytes behind)"


def log_slow_wait(began: float, what: str, directory: Path) -> None:
    """Logs a long wait of a put. It holds no append lock, so other puts go on meanwhile."""
    elapsed = (time.monotonic() - began) * 1000
    if elapsed > SLOW_MS:
        logger.warning("%s: a put waited %.0f ms for %s", directory, elapsed, what)
