"""Prints the newest Python here that rocketstore is made for, if it is newer than the one that runs this.

Looked for are python3.N on PATH and in the versions of pyenv, N of the classifiers in pyproject.toml. Run as a
script, before anything is installed. Ends with 1 and a reason where there is none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: A Python with which an environment can be made, and extensions built.
ASKED = """
import ensurepip, os, sys, sysconfig, venv
assert os.path.exists(sysconfig.get_path("include") + "/Python.h")
print("%d.%d" % sys.version_info[:2])
"""


def minor_versions() -> list[int]:
    """Of the classifiers, the newest first."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', text)
    return sorted(map(int, found), reverse=True)


def pyenv_versions() -> Path:
    """Where pyenv keeps them; it need not be there."""
    root = os.environ.get("PYENV_ROOT", "")
    if not root:
        try:
            asked = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=False)
            root = asked.stdout.strip()
        except FileNotFoundError:
            pass
    return Path(root or Path.home() / ".pyenv") / "versions"


def candidates(minor: int) -> Iterator[str]:
    name = f"python3.{minor}"
    yield name
    kept = pyenv_versions().glob(f"3.{minor}.*/bin/python3.{minor}")
    yield from map(str, sorted(kept, key=lambda path: _patch(path.parts[-3]), reverse=True))


def _patch(version: str) -> int:
    number = version.rpartition(".")[2]
    return int(number) if number.isdigit() else -1


def works(python: str, minor: int) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", ASKED], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == f"3.{minor}"


def newest(than: int) -> str | None:
    """A Python 3.N whose N is greater."""
    for minor in minor_versions():
        for python in candidates(minor):
            if minor > than and works(python, minor):
                return python
    return None


def main() -> int:
    here = sys.version_info[1]
    found = newest(here)
    looked = ", ".join(f"3.{minor}" for minor in minor_versions() if minor > here)
    print(found or f"no newer Python than 3.{here} is here (looked for: {looked or 'none'})")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
