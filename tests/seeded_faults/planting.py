"""Plants a fault into a copy of the sources and runs tests there.

A test suite that passes with a fault in the code proves nothing. The faults live in the tests, as edits of
the sources, never in the product: release builds have no fault switch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support import campaign
from tests.support.paths import ROOT

__all__ = ["ROOT", "Fault", "caught", "edited", "plant"]

PARTS = ("csrc", "rocketstore", "tests", "setup.py", "pyproject.toml", "README.md", "LICENSE")
NATIVE = ("csrc/", "rocketstore/_native/")


@dataclass(frozen=True)
class Fault:
    """In `path` each first text of `edits` is replaced by the second."""

    id: str
    path: str
    edits: tuple[tuple[str, str], ...]


def edited(fault: Fault, text: str) -> str:
    """The text of its file with the fault in it."""
    for old, new in fault.edits:
        assert text.count(old) == 1, f"{fault.id}: {fault.path} no longer has the line to change"
        text = text.replace(old, new)
    return text


def plant(fault: Fault, tree: Path) -> None:
    """Copies the sources to `tree`, with the fault, and builds what it touches: objects come along."""
    native = fault.path.startswith(NATIVE)
    built = [f"build/{path.name}" for path in (ROOT / "build").glob("[cn]*")] if native else []
    for part in (*PARTS, *built):
        source = ROOT / part
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "stores", ".hypothesis")
            shutil.copytree(source, tree / part, ignore=ignore)
        elif source.exists():
            shutil.copy2(source, tree / part)
    target = tree / fault.path
    target.write_text(edited(fault, target.read_text()))
    if native:
        subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            check=True,
            capture_output=True,
        )


def caught(tree: Path, tests: list[str], **environment: str) -> str:
    """Runs `tests` in a planted tree; asserts that a test failed, by itself, and gives what was said."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        # Without CI pytest shortens what it says of a difference instead of working it out for minutes.
        env={**campaign.without(os.environ), "PYTHONPATH": str(tree), "CI": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    said = run.stdout[-3000:] + run.stderr[-2000:]
    assert run.returncode == 1, f"not caught:\n{said}"
    assert "1 failed" in run.stdout, said
    return run.stdout
