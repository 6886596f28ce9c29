"""Where the consume queues of a store lie: in directories of their own, by topic and queue id, or in a
RocksDB of a broker (`storeType=defaultRocksDB`), which is not read here (format.md 1).

Names of directories are synced with the units in them, and not before (D-18): until then nothing
relies on them, and a store may get thousands in a second.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from rocketstore._native.format.codec import crc32c
from rocketstore._native.format.constants import UNIT_SIZE
from rocketstore._native.os import syscalls
from rocketstore.errors import HINTS, ReadFailedError
from rocketstore.log.layout.listing import list_files, usual_size
from rocketstore.log.layout.ownership import FILE_QUEUE, IN_THE_WAY, LINKED_QUEUE, make_like
from rocketstore.log.layout.paths import QUEUE_ID_MAX, StoreLayout, is_safe_name, segment_name

__all__ = [
    "QueueDirectories",
    "check_place",
    "directory_names",
    "is_queue_id",
    "names_digest",
    "queue_file_size",
    "queues_in",
    "refuse_rocksdb_queues",
    "rocksdb_queues",
    "rocksdb_remedy",
]

logger = logging.getLogger(__name__)

#: Queues that say how long the files of queues are, a count.
VOTES_MAX: Final = 32
#: Directory of a RocksDB since 5.5.0, with `useSeparateStorePathForRocksdbCQ`; else it lies among the
#: queue files.
SEPARATE: Final = "consumequeue_rocksdb"


def queues_in(root: Path) -> Iterator[tuple[str, int, str]]:
    """Topic, queue id and path of each queue that has a directory; other names are no queues
    (format 6.1). There may be many: with a `Path` for each this takes three times as long."""
    top = os.fspath(root)
    for topic in directory_names(top):
        if not is_safe_name(topic):
            logger.warning("%s/%s cannot be a topic, ignored", top, topic)
            continue
        for name in directory_names(f"{top}/{topic}"):
            if is_queue_id(name):
                yield topic, int(name), f"{top}/{topic}/{name}"


def directory_names(path: str | os.PathLike[str]) -> list[str]:
    """Names of directories in a directory, in order; none if it does not exist. Links do not
    count."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_queue_id(name: str) -> bool:
    """Whether a directory can be that of a queue: a number without leading zeros."""
    if not (name.isascii() and name.isdecimal() and len(name) <= 10):
        return False
    return str(int(name)) == name and int(name) <= QUEUE_ID_MAX


def names_digest(queues: Iterable[tuple[str, int]]) -> tuple[int, int]:
    """Count of (topic, queue id) names, and CRC-32C of them, sorted: what our checkpoint keeps."""
    names = sorted(f"{topic}/{queue_id}" for topic, queue_id in queues)
    return len(names), crc32c("\n".join(names).encode())


def check_place(directory: Path, start: int) -> None:
    """A queue can have a file that begins at `start`, and its directories.

    Raises:
        PermissionError: a directory is a link; what it leads to is not the store's.
        NotADirectoryError: one is a file.
        FileExistsError: something else has the name of the file.
    """
    for path in (directory.parent, directory):
        _check_directory(path)
    path = directory / segment_name(start)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise FileExistsError(errno.EEXIST, IN_THE_WAY, os.fspath(path))


def _check_directory(path: Path) -> None:
    if path.is_symlink():
        raise PermissionError(errno.EPERM, LINKED_QUEUE, os.fspath(path))
    if path.is_file():
        raise NotADirectoryError(errno.ENOTDIR, FILE_QUEUE, os.fspath(path))


class QueueDirectories:
    """`root`/topic/queue id. Only the dispatcher makes some; another thread syncs them."""

    def __init__(self, root: Path, *, makes: bool = True) -> None:
        self._root = root
        self._makes = makes
        #: Whether a file that could not be made on disk is not made in memory either.
        self.as_on_disk = makes
        #: Directories whose names are all on disk. Empty at first: a process that died may have
        #: made some names.
        self._synced: set[Path] = set()

    def make(self, directory: Path, start: int) -> None:
        """Before a queue's file that begins at `start` is made: makes the directory of the queue,
        and that of its topic, if they are missing. Raises: as `check_place`."""
        if self.as_on_disk:
            check_place(directory, start)
        if not self._makes:
            return
        for path in (directory.parent, directory):
            if not path.is_dir():
                make_like(path, self._root.stat())
                self._synced.discard(path.parent)

    def sync(self, directories: Iterable[Path]) -> None:
        """Syncs the names of these queues' directories, and of their topics'. Raises OSError."""
        for parent in (self._root, *{directory.parent for directory in directories}):
            if parent not in self._synced:
                self._synced.add(parent)  # before: what is made meanwhile takes it away again
                syscalls.sync_directory(os.fspath(parent))


def queue_file_size(root: Path, remembered: int = 0) -> int | None:
    """Length of the files of most consume queues, of those looked at; None without a whole file.
    Any file may be cut, or have bytes after its end: what is `remembered` counts, unless a file
    begins where none of that length does, or two of them lie further apart."""
    votes: Counter[int] = Counter()
    for _, _, queue in queues_in(root):
        files = list_files(queue)
        steps = [later - start for (start, _), (later, _) in itertools.pairwise(files)]
        if remembered and (
            any(start % remembered for start, _ in files)
            or min(steps, default=remembered) > remembered
        ):
            remembered = 0
        size = usual_size([each for each in files if each[1] % UNIT_SIZE == 0])
        if size is not None:
            votes[size] += 1
        if votes.total() >= VOTES_MAX:
            break
    if votes and remembered:
        return remembered
    return max(votes, key=lambda size: (votes[size], size), default=None)


def rocksdb_queues(layout: StoreLayout) -> Path | None:
    """The directory of the queues that are in RocksDB; None where there are none."""
    for directory in (layout.consume_queue, layout.root / SEPARATE):
        if (directory / "CURRENT").is_file():
            return directory
    return None


def rocksdb_remedy(directory: Path) -> str:
    """Why such a store is not written, and what to do."""
    return (
        f"has its consume queues in RocksDB ({directory}), which is not written here: "
        f"{HINTS['reader']}; or move the RocksDB files out of the store, and an open makes queue "
        "files from the log, for a broker with storeType=default"
    )


def refuse_rocksdb_queues(layout: StoreLayout) -> None:
    """Raises ReadFailedError where a broker writes queues that cannot be followed."""
    directory = rocksdb_queues(layout)
    if directory is not None:
        raise ReadFailedError(
            f"{layout.root}: the broker that writes this store keeps the consume queues in RocksDB "
            f"({directory}), which is not read: stop the broker and open the store again, or scan "
            "the log (rocketstore.scan)"
        )
