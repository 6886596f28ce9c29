"""A copy of a store at work is what its death would leave, but for files that go away meanwhile."""

from __future__ import annotations

import contextlib
import shutil

__all__ = ["copy_if_there"]


def copy_if_there(source: str, target: str) -> None:
    """For `shutil.copytree`."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)
