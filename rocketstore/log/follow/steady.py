"""Looks of a reader at files that a recovery or rebuild changes: queues, their directories, the index.

A writer that recovers cuts queues and fills them again; a rebuild renames them. What a reader finds
meanwhile is less than there is, and looks like all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from rocketstore.errors import StoreRecoveringError
from rocketstore.log.layout.lock import describe_recovery

if TYPE_CHECKING:
    from rocketstore.log.follow.writer_monitor import WriterMonitor, WriterState
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["SteadyLooks"]

#: Longest wait for a process that recovers the store, and its step, seconds.
RECOVERY_S: Final = 1.0
STEP_S: Final = 0.01

T = TypeVar("T")


class SteadyLooks:
    """Any thread may use it."""

    def __init__(
        self,
        layout: StoreLayout,
        watch: WriterMonitor,
        writer: Callable[[], WriterState],
        catch_up: Callable[[], None],
    ) -> None:
        """`writer()`: what the last look at the writer said; `catch_up()`: looks again."""
        self._layout = layout
        self._watch = watch
        self._writer = writer
        self._catch_up = catch_up

    @property
    def run(self) -> object:
        """Of the last writer of ours that was seen; another one may have rebuilt the files."""
        return self._watch.seen

    def of(self, look: Callable[[], T]) -> T:
        """What `look` finds while no writer of ours recovers or rebuilds. It may be called again.

        Raises:
            StoreRecoveringError: a process was not through after RECOVERY_S.
        """
        deadline = 0.0
        while True:
            run = self._watch.seen
            if self._writer() != "recovering":
                found = look()
                if self._watch.run() == run:
                    return found
            now = time.monotonic()
            if not deadline:
                deadline = now + RECOVERY_S
            elif now >= deadline:
                raise StoreRecoveringError(
                    str(self._layout.root), describe_recovery(self._layout), "call again"
                )
            else:
                time.sleep(STEP_S)
            self._catch_up()
