"""Restores the clean shutdown that an open for writing has found, where that open fails and changed
nothing.

Otherwise a refused option, or a lack of memory, would make the next open recover as after a crash.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from rocketstore.errors import MissingSegmentsError
from rocketstore.log.layout.lock import abort_exists, create_abort, remove_abort

if TYPE_CHECKING:
    from rocketstore.log.commitlog.checkpoint import CheckpointFile, OwnCheckpoint
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.recovery.recovery import RecoveryReport

__all__ = ["CleanShutdown", "stopped_cleanly"]

logger = logging.getLogger(__name__)


def stopped_cleanly(report: RecoveryReport, *, indexed: bool) -> bool:
    """Whether log, queues and index are whole on disk, so that an open has nothing to recover."""
    if report.mode != "clean" or report.cut is not None or report.damage:
        return False
    derived = min(report.dispatch_start, report.index_start if indexed else report.end)
    return derived >= report.end


class CleanShutdown:
    """The state of one open: `begin` → `changes` → `recovered` → the end of the open. An open that
    fails calls `restore`."""

    def __init__(self, layout: StoreLayout, own_file: CheckpointFile) -> None:
        self._layout = layout
        self._own_file = own_file
        self.found = not abort_exists(layout)
        self._marked = False  # True in an open for writing only
        self._stands = False
        self._before: OwnCheckpoint | None = None
        self._recovered = False

    def begin(self) -> None:
        """Called before anything changes: from here on a stop is not a clean one."""
        self._before = self._own_file.load()
        self._marked = self._stands = self.found
        create_abort(self._layout)

    def changes(self) -> None:
        """Called before the open changes files."""
        self._stands = False

    def recovered(self, *, unchanged: bool) -> None:
        """Called after recovery. `unchanged`: recovery only removed the clean mark from our
        checkpoint, and nothing else changes before the next call of `changes` or the end of the
        open."""
        self._stands = self._recovered = self.found and unchanged

    def restore(self, error: BaseException) -> None:
        """Called when the open ends with this error: stores the old checkpoint, then removes
        `abort`."""
        missing = self._marked and isinstance(error, MissingSegmentsError)  # before any change
        if not (self._stands or missing) or self._own_file.failed:
            return
        try:
            now = self._own_file.load()
            if self._recovered and now is not None and not now.clean:
                before = dataclasses.replace(self._before or now, clean=True)
                self._own_file.store(dataclasses.replace(before, generation=now.generation + 1))
            remove_abort(self._layout)
        except OSError as trouble:
            logger.warning("%s: the next open recovers: %s", self._layout.root, trouble)
