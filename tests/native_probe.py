"""Builds and loads native_probe.pyx, once a process."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import pytest

import rocketstore

SOURCE = Path(__file__).with_suffix(".pyx")
#: Where Cython finds `rocketstore/_native/*.pxd`.
PACKAGE_PARENT = Path(rocketstore.__path__[0]).parent


@functools.cache
def load() -> Any:
    """The built module; skips the test where nothing can be built."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or importlib.util.find_spec("Cython") is None:
        pytest.skip("needs a C compiler and Cython")
    with tempfile.TemporaryDirectory() as directory:
        c_file = Path(directory) / "native_probe.c"
        built = Path(directory) / f"native_probe{sysconfig.get_config_var('EXT_SUFFIX')}"
        cython = [sys.executable, "-m", "cython", "-3", f"-I{PACKAGE_PARENT}"]
        _run([*cython, "-o", str(c_file), str(SOURCE)])
        include = sysconfig.get_path("include")
        command = [compiler, "-O1", "-fPIC", "-shared", "-w", f"-I{include}"]
        _run([*command, str(c_file), "-o", str(built)])
        spec = importlib.util.spec_from_file_location("native_probe", built)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
