"""No module takes the name of something that its package exports: Python would put the module in its place."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.structure.floors import OPEN_TO_FACES
from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

#: Imports every module of a package, then looks at what its exported names are.
PROGRAM = """
import importlib, pkgutil, sys, types
for name in sys.argv[1:]:
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        if (error.name or "rocketstore").startswith("rocketstore"):
            raise
        continue  # of an extra that is not installed
    exported = {}
    for one in getattr(package, "__all__", ()):
        try:
            exported[one] = getattr(package, one)
        except ImportError as error:
            if (error.name or "rocketstore").startswith("rocketstore"):
                raise
    for found in pkgutil.walk_packages(getattr(package, "__path__", []), f"{name}."):
        if found.name.rpartition(".")[2] == "__main__":
            continue
        try:
            importlib.import_module(found.name)
        except ImportError:  # of an extra that is not installed
            pass
    for one, value in exported.items():
        now = getattr(package, one)
        if isinstance(now, types.ModuleType) and not isinstance(value, types.ModuleType):
            print(f"{name}.{one}")
"""


def test_no_module_shadows_an_exported_name() -> None:
    packages = ["rocketstore", *sorted(OPEN_TO_FACES)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *packages],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
