"""Directories that demos make, and make anew: nothing is deleted that a demo did not make."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import click

__all__ = ["make_room", "mark"]

MARK: Final = "made-by-rocketstore-demo"


def make_room(path: Path) -> None:
    """Removes what an earlier demo made at `path`; anything else there is refused."""
    if path.exists() and any(path.iterdir()):
        if not (path / MARK).exists():
            raise click.ClickException(f"{path} is not empty and was not made by a demo")
        shutil.rmtree(path)


def mark(path: Path) -> None:
    """The directory may be removed by the next demo."""
    (path / MARK).touch()
