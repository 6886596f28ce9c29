"""Calls a listener when messages arrive, in its own thread, so that dispatch never waits (K-85)."""

from __future__ import annotations

import _queue
import contextlib
import logging
import queue
import threading
from collections.abc import Callable

from rocketstore.values.threads import runs_here, start_thread

logger = logging.getLogger(__name__)

__all__ = ["Arrival", "ArrivalNotifier"]

#: (topic, queue_id, next_queue_offset, tags_code, store_timestamp_ms)
Arrival = tuple[str, int, int, int, int]
#: Most calls that wait, a count; then the oldest are dropped, since a later call says how far the
#: queue is.
WAITING_MAX = 100_000
#: Longest wait for the listener at a close, seconds.
CLOSE_WAIT_S = 5.0


class ArrivalNotifier:
    """A bounded queue and the thread that empties it into `listener`."""

    def __init__(self, listener: Callable[[str, int, int, int, int], None]) -> None:
        self._listener = listener
        # The one queue class that a signal handler may interrupt safely. It is unbounded; `_add`
        # bounds it. Not from `queue`, where gevent has replaced it.
        self._waiting: queue.SimpleQueue[Arrival | None] = _queue.SimpleQueue()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="rocketstore-arrivals", daemon=True)
        start_thread(self._thread)

    def hand_over(self, arrivals: list[Arrival]) -> None:
        """Never blocks."""
        for arrival in arrivals:
            self._add(arrival)

    def _add(self, arrival: Arrival | None) -> None:
        if self._waiting.qsize() >= WAITING_MAX:
            with contextlib.suppress(queue.Empty):
                self._waiting.get_nowait()
        self._waiting.put(arrival)

    def _run(self) -> None:
        while (arrival := self._waiting.get()) is not None:
            try:
                self._listener(*arrival)
            except Exception:
                if not self._failed:
                    self._failed = True
                    logger.exception("the arrival listener raised; further errors are not logged")

    def close(self) -> None:
        """Ends the thread after the waiting calls; waits at most CLOSE_WAIT_S."""
        self._add(None)
        if not runs_here(self._thread):
            self._thread.join(CLOSE_WAIT_S)
