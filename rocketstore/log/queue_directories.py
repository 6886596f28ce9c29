"""The directories of queues and of their topics. Their names come to the disk with the units in them, and not
before (D-18): until then nothing relies on them, and a store may get thousands in a second."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rocketstore._native import syscalls
from rocketstore.log.state_files import make_like

__all__ = ["QueueDirectories"]


class QueueDirectories:
    """`root`/topic/queue id. Only the dispatcher makes some; another thread syncs them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        #: In which every name is on disk. At first none: a process that died may have given names.
        self._synced: set[Path] = set()

    def make(self, directory: Path) -> None:
        """The directory of a queue, and that of its topic; what is missing of them."""
        for path in (directory.parent, directory):
            if not path.is_dir():
                make_like(path, self._root.stat())
                self._synced.discard(path.parent)

    def sync(self, directories: Iterable[Path]) -> None:
        """The names of these queues' directories, and of their topics', are on disk. Raises OSError."""
        for parent in (self._root, *{directory.parent for directory in directories}):
            if parent not in self._synced:
                self._synced.add(parent)  # before: what is made meanwhile takes it away again
                syscalls.sync_directory(os.fspath(parent))
