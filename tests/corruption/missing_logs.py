"""Ways in which a log, or a part of it, is not where its store is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.small_store import segments

__all__ = ["MISSING", "SEGMENT_BYTES", "unmount"]

#: Of the stores that lose files: four of them, or a few more.
SEGMENT_BYTES: Final = 64 << 10


def unmount(root: Path) -> Callable[[], object]:
    """Takes the log away, as the mount point of its disk stays behind; the result brings it back."""
    log, away = root / "commitlog", root.with_name(f"{root.name}-disk")
    log.rename(away)
    log.mkdir()

    def back() -> None:
        log.rmdir()
        away.rename(log)

    return back


def link_to_nowhere(root: Path) -> None:
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").symlink_to(root.parent / "disk" / "commitlog")


MISSING: Final[dict[str, Callable[[Path], object]]] = {
    "nothing there": lambda root: shutil.rmtree(root / "commitlog"),
    "an empty mount point": unmount,
    "a link to nowhere": link_to_nowhere,
    "no first file": lambda root: segments(root)[0].unlink(),
    "no second file": lambda root: segments(root)[1].unlink(),
    "no last file": lambda root: segments(root)[-1].unlink(),
    "no last two files": lambda root: [path.unlink() for path in segments(root)[-2:]],
}
