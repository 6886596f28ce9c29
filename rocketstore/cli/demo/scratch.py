"""Directories for a while."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["scratch_directory"]


@contextmanager
def scratch_directory(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new one, which is removed at the end, as a whole also when Ctrl-C comes while it is: some GiB take
    their time."""
    path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield Path(path)
    finally:
        try:
            shutil.rmtree(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)
