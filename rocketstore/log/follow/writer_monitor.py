"""Finds out from another process which program writes a store at this moment (D-30)."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from rocketstore._native.os import syscalls
from rocketstore.errors import CorruptRecordError, ReadFailedError, StoreRecoveringError
from rocketstore.log.layout.lock import describe_recovery
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import PositionsPage

__all__ = ["SteadyLooks", "WriterMonitor", "WriterSeen", "WriterState", "writer_state"]


#: "live": a rocketstore whose positions can be believed. "recovering": a rocketstore that opens or
#: closes. "java": RocketMQ. "none": no process holds the lock.
WriterState = Literal["live", "recovering", "java", "none"]


@dataclass(frozen=True, slots=True)
class WriterSeen:
    """A writer, as far as its lock and page show it. `run`: of the last rocketstore seen live."""

    state: WriterState
    run: bytes
    holder: int | None


class WriterMonitor:
    """Reads the lock and the positions page. Opens both as soon as they exist, creates neither."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._lock_fd = -1
        self._closing: weakref.finalize[..., WriterMonitor] | None = None
        self._run = b""
        self.page: PositionsPage | None = None
        #: `run` as the last `see` began.
        self.seen: tuple[bytes, int] | None = None

    def run(self) -> tuple[bytes, int] | None:
        """The run and state of the page now, without a system call. A writer changes it before it
        changes any other file."""
        page = self.page
        return None if page is None else (page.positions.run_id, page.positions.state)

    def see(self) -> WriterSeen:
        """The writer now. "live" means: at this moment the page could be believed."""
        if self._lock_fd < 0:
            try:
                self._lock_fd = syscalls.open(str(self._layout.lock), os.O_RDONLY)
            except FileNotFoundError:
                return WriterSeen("none", self._run, None)
            # The collector unmaps the page of a reader that was not closed; this closes its
            # descriptor.
            self._closing = weakref.finalize(self, syscalls.close, self._lock_fd)
            self._closing.atexit = False
        if self.page is None:
            with contextlib.suppress(FileNotFoundError):
                self.page = PositionsPage.open_readonly(self._layout.positions)
        self.seen = self.run()
        if self.page is not None and self.page.believable(self._lock_fd):
            self._run = self.page.positions.run_id
            return WriterSeen("live", self._run, -1)
        holder = syscalls.first_byte_holder(self._lock_fd)
        if holder is None:
            return WriterSeen("none", self._run, None)
        return WriterSeen("java" if holder > 0 else "recovering", self._run, holder)

    def close(self) -> None:
        """Closes both files. Unlocks nothing, since the lock is the writer's."""
        self._lock_fd = -1
        try:
            if self.page is not None:
                self.page.close()
        finally:
            if self._closing is not None:
                self._closing()


def writer_state(layout: StoreLayout) -> WriterState:
    """The kind of writer that the store has at this moment."""
    monitor = WriterMonitor(layout)
    try:
        return monitor.see().state
    finally:
        monitor.close()


# Looks of a reader at files that a recovery or rebuild changes: queues, their directories, the index.
#
# A writer that recovers cuts queues and fills them again; a rebuild renames them. What a reader finds
# meanwhile is less than there is, and looks like all of it.

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
            CorruptRecordError, ReadFailedError: as `look`, while the writer stayed the same.
        """
        deadline = 0.0
        while True:
            run = self._watch.seen
            if self._writer() != "recovering":
                try:
                    found = look()
                except (CorruptRecordError, ReadFailedError):
                    if self._watch.run() == run:
                        raise
                else:
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
