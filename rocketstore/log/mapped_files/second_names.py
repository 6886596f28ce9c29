"""Second names (hard links) of segments that are being written (D-05).

A RocketMQ that starts meanwhile recovers before it looks at the lock, and may delete segments after
the end that it found. The links in `rocketstore/live/` keep their bytes. Before the flusher reports
bytes as durable it checks that the files still have both names.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.layout.paths import parse_segment_name, segment_name
from rocketstore.log.layout.state_files import unlink_if_there

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.layout.paths import StoreLayout

logger = logging.getLogger(__name__)

__all__ = ["SecondNames"]

BOTH_NAMES = 2


class SecondNames:
    """The links of one store. The preallocator prepares the link of a segment, so that no put waits
    for a directory. The put that takes the segment adds it; the flusher checks it."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._lock = SignalSafeLock("second names")  # a handler may close the store inside a put
        self._files: list[MappedFile] = []
        self._waiting: set[MappedFile] = set()  # linked, and not in use
        self._sealed: list[MappedFile] = []  # durable, and may have their second name still
        self._reported: MappedFile | None = None
        self._possible = True

    def restore(self) -> list[str]:
        """Gives segments that lost their name it back, and returns which. Call it before the log
        loads."""
        restored = []
        removed = False
        for name in sorted(os.listdir(self._layout.live)) if self._layout.live.is_dir() else []:
            if parse_segment_name(name) is None:
                continue
            live, path = self._layout.live / name, self._layout.commit_log / name
            if not path.exists():
                syscalls.link(str(live), str(path))
                syscalls.sync_directory(str(self._layout.commit_log))
                restored.append(name)
                logger.error("%s had vanished, restored from %s", path, live)
            syscalls.unlink(str(live))
            removed = True
        if removed:
            # Before recovery removes a segment: its second name must not restore it.
            syscalls.sync_directory(str(self._layout.live))
        return restored

    def prepare(self, file: MappedFile) -> None:
        """Links a segment that a put will take, or that is withdrawn. OSError: it has no second
        name."""
        try:
            linked = self._link(file)
        except OSError:
            self._remove(file)
            raise
        if linked:
            with self._lock():
                self._waiting.add(file)

    def withdraw(self, file: MappedFile) -> None:
        """Removes the link of a segment that is not needed. The caller removes the segment after
        this, or `restore` would give it back."""
        with self._lock():
            waited = file in self._waiting
            self._waiting.discard(file)
        if waited:
            self._remove(file)

    def add(self, file: MappedFile) -> None:
        """The caller is about to write a segment. A second call for it does nothing."""
        with self._lock():
            if file in self._files:
                return
            waited = file in self._waiting
            self._waiting.discard(file)
        if waited:
            self._check(file)
        elif not self._link(file):
            return
        with self._lock():
            self._files.append(file)

    def _link(self, file: MappedFile) -> bool:
        """Gives a segment its second name, durably. Whether it has one."""
        if not self._possible or not file.path:
            return False
        live = self._live_path(file)
        try:
            if os.path.lexists(live):
                unlink_if_there(live)
            syscalls.link(file.path, live)
            syscalls.sync_directory(str(self._layout.live))
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                raise
            self._possible = False
            logger.warning(
                "no second names for segments here (%s): do not start RocketMQ meanwhile",
                error,
            )
            return False
        return True

    def check(self) -> None:
        """Gives each segment being written that lost its name it back.

        Raises:
            OSError: it cannot have it back; what was written there would be lost.
        """
        for file in self._files:
            self._check(file)

    def _check(self, file: MappedFile) -> None:
        if syscalls.link_count(file.fd) >= BOTH_NAMES:
            return
        live = self._live_path(file)
        logger.error("%s was removed by another program, linked again", file.path)
        try:
            syscalls.link(live, file.path)
        except (FileExistsError, FileNotFoundError):
            syscalls.link(file.path, live)  # it was the second name that went
        syscalls.sync_directory(str(self._layout.commit_log))

    def descriptors(self) -> list[int]:
        """Descriptors of the segments that must have two names."""
        return [file.fd for file in self._files]

    def settle(self, flushed: int) -> None:
        """Removes the links of segments that are full and durable. One that cannot be removed harms
        no put: each call tries again."""
        with self._lock():
            self._sealed += [file for file in self._files if file.end_offset <= flushed]
            self._files = [file for file in self._files if file.end_offset > flushed]
        kept = self.let_go()
        if kept is not None:
            self._report(kept[1])

    def let_go(self) -> tuple[int, OSError] | None:
        """Removes the links of all segments that need none; a caller that removes such a segment
        calls it first, or `restore` would give it back. Returns the start of the first one that
        keeps its link, and why. Any thread may call it."""
        kept = None
        for file in self._sealed:
            try:
                self._remove(file)
            except OSError as error:
                kept = kept or (file.start_offset, error)
                continue
            with self._lock():
                self._sealed = [other for other in self._sealed if other is not file]
        return kept

    def _report(self, error: OSError) -> None:
        """Logs an error once for each segment."""
        first = next(iter(self._sealed), None)
        if first is not self._reported:
            self._reported = first
            logger.warning(
                "a second name of a segment cannot be removed; it is tried again, and the segment "
                "is not trimmed before: %s",
                error,
            )

    def close(self) -> None:
        """Removes all links. One that a failed disk keeps is handled by the next open
        (`restore`)."""
        with self._lock():
            files, self._files, self._sealed = [*self._sealed, *self._files], [], []
        for file in files:
            try:
                self._remove(file)
            except OSError as error:
                logger.warning("a second name of a segment cannot be removed: %s", error)

    def _live_path(self, file: MappedFile) -> str:
        return str(self._layout.live / segment_name(file.start_offset))

    def _remove(self, file: MappedFile) -> None:
        unlink_if_there(self._live_path(file))
