"""Directories that the demo and the bench make: a place for each demo, and scratch directories.

Nothing is deleted that these functions did not make.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

__all__ = ["make_room", "mark", "scratch_directory"]

MARK: Final = "made-by-rocketstore-demo"


def make_room(path: Path) -> None:
    """Removes what an earlier demo made at `path`. Raises ClickException for anything else
    there."""
    if path.exists() and any(path.iterdir()):
        if not (path / MARK).exists():
            raise click.ClickException(f"{path} is not empty and was not made by a demo")
        shutil.rmtree(path)


def mark(path: Path) -> None:
    """The directory may be removed by the next demo."""
    (path / MARK).touch()


@contextmanager
def scratch_directory(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new directory, which is removed at the end. A second Ctrl-C during the removal, which takes
    its time with some GiB, does not leave a part."""
    path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        yield Path(path)
    finally:
        try:
            shutil.rmtree(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)
