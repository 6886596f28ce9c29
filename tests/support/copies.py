"""A copy of a store at work is what its death would leave, but for files that go away meanwhile."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import rocketstore

__all__ = ["copy_if_there", "store_is_there"]


def copy_if_there(source: str, target: str) -> None:
    """For `shutil.copytree`."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


def store_is_there(path: Path) -> bool:
    """Whether another process, which makes a store there, is so far that it can be read."""
    with contextlib.suppress(OSError, rocketstore.RocketStoreError):
        rocketstore.open(path, "r").close()
        return (path / "rocketstore" / "store.json").exists()
    return False
