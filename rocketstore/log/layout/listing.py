"""Lists the directory of a log or a queue, before any file is believed (format.md 1.1, 1.2)."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore._native.os import syscalls
from rocketstore.log.layout.ownership import check_second_names, make_like
from rocketstore.log.layout.paths import parse_segment_name

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile

__all__ = [
    "LOG",
    "WrongSize",
    "file_at",
    "has_place",
    "list_files",
    "list_segments",
    "make_directory",
    "short_files",
    "usual_size",
]

logger = logging.getLogger(__name__)

#: What error texts call the commit log.
LOG = "commit log"
#: Longest file of a log or a queue, bytes: the most that RocketMQ's options and ours can say.
FILE_BYTES_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class WrongSize:
    """A file of another length than the files of its queue, or one that overlaps the file before
    it."""

    path: str
    found_bytes: int
    wanted_bytes: int
    last: bool

    @property
    def start_offset(self) -> int:
        return int(os.path.basename(self.path))

    @property
    def missing_bytes(self) -> int:
        return max(0, self.wanted_bytes - self.found_bytes)

    def __str__(self) -> str:
        where = "last" if self.last else "not the last"
        return f"{self.path}: {self.found_bytes} bytes instead of {self.wanted_bytes} ({where})"


def list_segments(
    directories: Iterable[Path], name: str, *, writes: bool = False
) -> tuple[list[tuple[int, int, str]], list[str]]:
    """Start, length and path of each file, in order, and the names that no file of a `name` has
    (K-44); each of those is logged and ignored. Directories are skipped, links never followed.

    Raises: PermissionError: with `writes`, a file is not the store's alone.
    """
    found: list[tuple[int, int, str]] = []
    aliens: list[str] = []
    for directory in directories:
        entries: list[os.DirEntry[str]] = []
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            if name == LOG:
                raise
            logger.warning("%s: a file in place of the directory of a %s", directory, name)
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                continue
            start = parse_segment_name(entry.name)
            if start is None or not entry.is_file(follow_symlinks=False):
                aliens.append(entry.name)
                logger.warning("%s: %r is no file of a %s", directory, entry.name, name)
                continue
            with contextlib.suppress(FileNotFoundError):  # the store that writes here removed it
                state = entry.stat(follow_symlinks=False)
                if writes:
                    check_second_names(entry.path, state)
                found.append((start, state.st_size, entry.path))
    return sorted(found), aliens


def list_files(directory: str | os.PathLike[str], *, is_log: bool = False) -> list[tuple[int, int]]:
    """Start offsets and sizes of the segments or queue files of a directory, in order; other names
    are ignored. None where a file is in place of the directory of a queue.

    Raises: NotADirectoryError: `is_log`, and a file is in its place."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                start = parse_segment_name(entry.name)
                if start is None or not entry.is_file(follow_symlinks=False):
                    continue
                with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                    found.append((start, entry.stat(follow_symlinks=False).st_size))
    except (FileNotFoundError, NotADirectoryError) as error:
        if is_log and isinstance(error, NotADirectoryError):
            raise
        return []
    return sorted(found)


def usual_size(found: Sequence[tuple[int, int] | tuple[int, int, str]]) -> int | None:
    """File size of a queue whose configuration is not known, from the starts and lengths of its
    files. It is the length with which most files reach up to the next one, since any file may have
    lost its end. Ties go to the most common length, then to the one at whose multiples most files
    start, then to the greater one. No file of a store is longer than `FILE_BYTES_MAX`."""
    starts = sorted({each[0] for each in found})
    steps = Counter(later - start for start, later in itertools.pairwise(starts))
    counts = Counter(min(each[1], FILE_BYTES_MAX) for each in found if each[1] > 0)
    return max(
        counts,
        key=lambda size: (
            steps[size],
            counts[size],
            sum(each[0] % size == 0 for each in found),
            size,
        ),
        default=None,
    )


def has_place(start: int, size: int) -> bool:
    """Whether a file of this size may start at this offset: its end must be a 64-bit offset,
    too."""
    return size > 0 and start % size == 0 and start + size < 1 << 63


def short_files(found: Sequence[tuple[int, int, str]], size: int) -> list[tuple[int, int, str]]:
    """Files that are too short and not the last: start, length and path."""
    return [
        one for one, _ in itertools.pairwise(found) if has_place(one[0], size) and one[1] < size
    ]


def make_directory(directory: Path) -> None:
    """Makes a directory and its missing parents, with the owner and mode of the first one that
    exists. Each name is synced, or a crash could take the files with it (D-18)."""
    missing = [directory, *itertools.takewhile(lambda above: not above.exists(), directory.parents)]
    if directory.exists():
        return
    model = missing[-1].parent.stat()
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            make_like(path, model)
        syscalls.sync_directory(os.fspath(path.parent))


def file_at(files: tuple[MappedFile, ...], file_size: int | None, offset: int) -> MappedFile | None:
    """The one of `files`, which are in order, that holds `offset`."""
    if not files or not file_size or offset < files[0].start_offset:
        return None
    index = (offset - files[0].start_offset) // file_size
    if index < len(files) and _holds(files[index], offset):
        return files[index]
    # A file before it is missing, so the index is too high.
    index = bisect.bisect_right(files, offset, key=attrgetter("start_offset")) - 1
    return files[index] if _holds(files[index], offset) else None


def _holds(file: MappedFile, offset: int) -> bool:
    return file.start_offset <= offset < file.end_offset
