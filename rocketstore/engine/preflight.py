"""Checks whether a directory can be opened as a store, before anything in it changes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from rocketstore._native.os import syscalls
from rocketstore.config import StoreConfig
from rocketstore.errors import HINTS, ConfigError, MissingSegmentsError
from rocketstore.log.layout.log_dirs import NAME_THEM, log_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.directories import rocksdb_queues, rocksdb_remedy
from rocketstore.log.read.batch_queue import batch_topics
from rocketstore.values.foreign import foreign_names, no_store
from rocketstore.values.threads import check_threads

__all__ = ["preflight"]


def preflight(path: str, mode: str, config: StoreConfig, *, force: bool = False) -> StoreLayout:
    """The paths of a store: a directory with a commit log, or nothing yet (mode "rw"). With `force`
    queues are one, too, whose log is gone."""
    if not syscalls.in_main_interpreter():
        raise RuntimeError(
            "a store is opened in the main interpreter of a process alone, and this is a "
            "sub-interpreter, which cannot end while threads of a store run in it; mod_wsgi: set "
            "WSGIApplicationGroup %{GLOBAL}"
        )
    root = Path(os.path.abspath(path))
    settings = (config.commit_log_dir, config.read_only_commit_log_dirs)
    layout = StoreLayout(root, log_directories(root, *settings))
    if layout.log_directories and mode != "r":
        raise ConfigError(
            "commit_log_dir" if settings[0] else "read_only_commit_log_dirs",
            settings[0] or settings[1],
            "a log in several directories, or outside of its store, is not written here: open it "
            f"with mode='r', or let {layout.commit_log} hold it, as a link perhaps",
        )
    _check(layout, mode, force)
    if mode != "r":
        check_threads()
    return layout


def _check(layout: StoreLayout, mode: str, force: bool) -> None:
    root = layout.root
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "a store is a directory, this is a file", str(root))
    if root.is_dir():
        _check_access(root, mode)
    if mode != "r" and layout.commit_log.is_symlink() and not layout.commit_log.exists():
        raise MissingSegmentsError(
            f"{layout.commit_log} is a link to {os.readlink(layout.commit_log)}, where nothing is: "
            "mount what it leads to, or make the directory"
        )
    if layout.removal.exists() and mode != "rw":
        raise FileNotFoundError(
            errno.ENOENT,
            f"destroy() of this store has begun; {HINTS['finish_removal']}",
            str(root),
        )
    without_log = not _is_store(layout) and _has_queues(layout)
    if without_log and not force:
        raise MissingSegmentsError(
            f"{layout.commit_log}: there is no log, but there are queues; mount or restore it "
            f"({NAME_THEM}), {HINTS['force']}"
        )
    if _is_store(layout) or without_log:
        batches = batch_topics(layout) if mode != "r" else []
        if batches:
            raise ConfigError(
                "path",
                str(root),
                f"has batch queues ({', '.join(batches[:3])}), which are not written here: "
                f"{HINTS['reader']}",
            )
        if mode != "r":
            _check_names(layout)
            directory = rocksdb_queues(layout)
            if directory is not None:
                raise ConfigError("path", str(root), rocksdb_remedy(directory))
        return
    if mode != "rw":
        raise FileNotFoundError(
            errno.ENOENT,
            f"there is no store here; {HINTS['create']}",
            str(root),
        )
    foreign = foreign_names(os.listdir(root), ("config", "lock")) if root.is_dir() else []
    foreign = [name for name in foreign if not _is_empty(root / name)]
    if foreign:
        if _is_store(layout):  # made by another process since the look above
            _check(layout, mode, force)
            return
        raise ConfigError(
            "path", str(root), f"{no_store(foreign)}; name a new or an empty directory"
        )


def _check_access(root: Path, mode: str) -> None:
    """Raises PermissionError for the directory, before an error names a file in it."""
    if not os.access(root, os.R_OK | os.X_OK):
        raise PermissionError(
            errno.EACCES, "the directory cannot be read and entered by this user", str(root)
        )
    if mode == "r" or os.access(root, os.W_OK):
        return
    if os.statvfs(root).f_flag & os.ST_RDONLY:
        raise PermissionError(
            errno.EROFS, f"the file system is read-only; {HINTS['reader_there']}", str(root)
        )
    raise PermissionError(
        errno.EACCES,
        f"the directory cannot be written by this user; {HINTS['reader_there']}",
        str(root),
    )


def _is_empty(path: Path) -> bool:
    """Whether this is a directory without anything in it, as of a volume that was prepared."""
    try:
        return not path.is_symlink() and next(path.iterdir(), None) is None
    except OSError:  # a file, or nobody may look
        return False


def _is_store(layout: StoreLayout) -> bool:
    logs = any(directory.is_dir() for directory in layout.logs)
    return layout.root.is_dir() and (logs or layout.own.is_dir())


def _has_queues(layout: StoreLayout) -> bool:
    try:
        with os.scandir(layout.consume_queue) as topics:
            return any(topic.is_dir(follow_symlinks=False) for topic in topics)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _check_names(layout: StoreLayout) -> None:
    """Refuses hard links of files that are overwritten in place: the write would change a backup,
    too. Log, queue and index files may have links: snapshots make them, and the log its own (D-05,
    D-38)."""
    marks = (layout.lock, layout.abort, layout.checkpoint, layout.own_checkpoint)
    for path in (*marks, layout.positions, layout.group_offsets):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            raise ConfigError(
                "path",
                str(layout.root),
                f"{path} has {found.st_nlink} names (hard links), and opening for writing would "
                "change all of them: put a copy in its place",
            )
