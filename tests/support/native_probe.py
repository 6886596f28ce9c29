"""Builds and loads native code that only tests need, once a process."""

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
    """The built native_probe.pyx; skips the test where nothing can be built."""
    with tempfile.TemporaryDirectory() as directory:
        return load_built(build(SOURCE, Path(directory)))


def build(source: Path, directory: Path) -> Path:
    """The library of a .pyx of tests, made in `directory`; skips the test where nothing can be built."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or importlib.util.find_spec("Cython") is None:
        pytest.skip("needs a C compiler and Cython")
    c_file = directory / f"{source.stem}.c"
    built = directory / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    cython = [sys.executable, "-m", "cython", "-3", f"-I{PACKAGE_PARENT}"]
    _run([*cython, "-o", str(c_file), str(source)])
    include = [f"-I{sysconfig.get_path('include')}", f"-I{source.parent}"]
    _run([compiler, "-O1", "-fPIC", "-shared", "-w", *include, str(c_file), "-o", str(built)])
    return built


def load_built(built: Path) -> Any:
    name = built.name.partition(".")[0]
    spec = importlib.util.spec_from_file_location(name, built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
