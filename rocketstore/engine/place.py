"""Whether a directory can be opened as a store at all, before anything in it is touched."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from rocketstore.errors import ConfigError
from rocketstore.log.layout import parse_segment_name
from rocketstore.log.other_queues import batch_topics

if TYPE_CHECKING:
    from pathlib import Path

    from rocketstore.log.layout import StoreLayout

__all__ = ["check_place", "queue_file_size"]


def check_place(layout: StoreLayout, mode: str) -> None:
    """A store is a directory with a commit log, or nothing yet (mode "rw")."""
    root = layout.root
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "a store is a directory, this is a file", str(root))
    store = root.is_dir() and (layout.commit_log.is_dir() or layout.own.is_dir())
    if store:
        if not os.access(root, os.R_OK | os.X_OK | (0 if mode == "r" else os.W_OK)):
            what = "readable" if mode == "r" else "readable and writable"
            raise PermissionError(errno.EACCES, f"the store is not {what} for this user", str(root))
        batches = batch_topics(layout) if mode != "r" else []
        if batches:
            raise ConfigError(
                "path",
                str(root),
                f"has batch queues ({', '.join(batches[:3])}), which are not written here: "
                "open it with mode='r'",
            )
        if mode != "r":
            _check_names(layout)
        return
    if mode != "rw":
        raise FileNotFoundError(
            errno.ENOENT, "there is no store here; mode='rw' would create one", str(root)
        )
    if root.is_dir() and any(name != "config" and name != "lock" for name in os.listdir(root)):
        raise ConfigError(
            "path", str(root), "holds other files and no store; name a new or an empty directory"
        )


def _check_names(layout: StoreLayout) -> None:
    """What is overwritten in place has no second name: through a hard link the write would reach a file
    of somebody else, or a backup. Log, queue and index files may have one: snapshots are made so, and
    the log has its own (D-05, D-38)."""
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


def queue_file_size(layout: StoreLayout) -> int | None:
    """Length of the first whole consume queue file that is found; None without one."""
    for topic in _directories(layout.consume_queue):
        for queue in _directories(topic):
            for name in sorted(os.listdir(queue)):
                size = (queue / name).stat().st_size if parse_segment_name(name) is not None else 0
                if size > 0 and size % 20 == 0:
                    return size
    return None


def _directories(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return [path / name for name in sorted(os.listdir(path)) if (path / name).is_dir()]
