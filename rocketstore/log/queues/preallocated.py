"""First files for queues that are still to come: whole and on disk, and without a name (decision 0021).

A queue's first file waits for the disk, and behind the dispatcher that makes it every other queue waits, too.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from rocketstore.log.layout.descriptors import waiting_max
from rocketstore.log.mapped_files.new_file import NewFile

__all__ = ["SpareFiles"]

#: At most so many wait, each with a descriptor; half as many as were asked for until now, or as are expected.
SPARES_MAX: Final = 32


class SpareFiles:
    """Sparse files of one size. Only the dispatcher takes them; any thread makes them."""

    def __init__(self, directory: Path, tmp_directory: Path, size: int) -> None:
        """`directory`: above those of all queues; owner and mode are as if it were theirs (D-09)."""
        self._directory = directory
        self._tmp = tmp_directory
        self._size = size
        self._max = waiting_max(SPARES_MAX)
        self._lock = threading.Lock()
        # Guarded by it.
        self._ready: list[NewFile] = []
        self._model: os.stat_result | None = None
        self._asked = 0
        self._expected = 0
        self._closed = False

    def expect(self, count: int) -> None:
        """So many queues more will soon have a first file."""
        with self._lock:
            self._expected = min(self._expected + count, self._max)

    @property
    def wanted(self) -> bool:
        """Whether `make_ahead` would be of use now."""
        return 2 * len(self._ready) < self._most

    @property
    def _most(self) -> int:
        return max(min(self._max, self._asked // 2), self._expected)

    def take(self, directory: Path, start_offset: int) -> NewFile | None:
        """The first file of the queue in `directory`; None: there is none that could be used there."""
        with self._lock:
            self._asked += 1
            self._expected = max(self._expected - 1, 0)
            if not self._ready or not _alike(self._model, directory.stat()):
                return None
            return self._ready.pop().placed(directory, start_offset)

    def make_ahead(self) -> bool:
        """Makes as many as will be wanted soon; one thread at a time. False: none can be.

        Raises:
            DiskFullError, OSError: no room; nothing was changed.
        """
        model = self._directory.stat()
        if self._tmp.stat().st_dev != model.st_dev:
            return False  # there is no place where it could wait (D-06)
        with self._lock:
            stale = [] if _alike(self._model, model) else self._ready
            if stale:
                self._ready = []
            self._model = model
        for new in stale:
            new.discard()
        made: list[NewFile] = []
        try:
            # Files between syncs would wait for each of them, behind them all for little more than one.
            for _ in range(self._most - len(self._ready)):
                made.append(self._make(model))
            for new in made:
                new.sync()
            with self._lock:
                if not self._closed:
                    self._ready += made
                    made = []
        finally:
            for new in made:
                new.discard()
        return not self._closed

    def _make(self, model: os.stat_result) -> NewFile:
        return NewFile.make(
            self._directory,
            self._tmp,
            0,
            self._size,
            sparse=True,
            model_stat=model,
            durable=False,
        )

    def drop(self, *, closed: bool = False) -> None:
        """They are not needed for now, or never again."""
        with self._lock:
            ready, self._ready = self._ready, []
            self._asked = self._expected = 0
            self._closed = self._closed or closed
        for new in ready:
            new.discard()


def _alike(model: os.stat_result | None, found: os.stat_result) -> bool:
    """Whether files for the one place can be used in the other."""
    return model is not None and all(
        getattr(model, name) == getattr(found, name)
        for name in ("st_dev", "st_uid", "st_gid", "st_mode")
    )
