"""Checks whether a directory can be opened as a store, before anything in it changes."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore.errors import HINTS, ConfigError
from rocketstore.log.layout.log_dirs import NAME_THEM, log_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.batch_queues import batch_topics

if TYPE_CHECKING:
    from rocketstore.config import StoreConfig

__all__ = ["preflight"]


def preflight(path: str, mode: str, config: StoreConfig) -> StoreLayout:
    """The paths of a store: a directory with a commit log, or nothing yet (mode "rw")."""
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
    _check(layout, mode)
    return layout


def _check(layout: StoreLayout, mode: str) -> None:
    root = layout.root
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "a store is a directory, this is a file", str(root))
    if root.is_dir():
        _check_access(root, mode)
    if layout.removal.exists() and mode != "rw":
        raise FileNotFoundError(
            errno.ENOENT,
            f"destroy() of this store has begun; {HINTS['finish_removal']}",
            str(root),
        )
    if _is_store(layout):
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
        return
    if mode != "rw":
        raise FileNotFoundError(
            errno.ENOENT,
            f"queues without a log; {NAME_THEM}"
            if layout.consume_queue.is_dir()
            else f"there is no store here; {HINTS['create']}",
            str(root),
        )
    if root.is_dir() and any(name != "config" and name != "lock" for name in os.listdir(root)):
        if _is_store(layout):  # made by another process since the look above
            _check(layout, mode)
            return
        raise ConfigError(
            "path", str(root), "holds other files and no store; name a new or an empty directory"
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


def _is_store(layout: StoreLayout) -> bool:
    logs = any(directory.is_dir() for directory in layout.logs)
    return layout.root.is_dir() and (logs or layout.own.is_dir())


def _check_names(layout: StoreLayout) -> None:
    """Refuses hard links of files that are overwritten in place: the write would change a backup,
    too. Log, queue and index files may have links: snapshots make them, and the log its own (D-05,
    D-38)."""
    own = (layout.lock, layout.abort, layout.checkpoint, layout.own_checkpoint, layout.positions)
    for path in own:
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
