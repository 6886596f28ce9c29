"""Builds and loads native code that only tests need, once a process."""

from __future__ import annotations

import fcntl
import functools
import hashlib
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
from tests.support.paths import ROOT

SOURCE = Path(__file__).with_suffix(".pyx")
#: Where Cython finds `rocketstore/_native/*.pxd`.
PACKAGE_PARENT = Path(rocketstore.__path__[0]).parent
BUILT = ROOT / "build" / "probes"


@functools.cache
def load() -> Any:
    """The built native_probe.pyx; skips the test where nothing can be built."""
    return load_built(build(SOURCE))


def build(source: Path) -> Path:
    """The library of a .pyx of tests, kept until what it is made of changes; skips the test where nothing can be
    built."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or importlib.util.find_spec("Cython") is None:
        pytest.skip("needs a C compiler and Cython")
    BUILT.mkdir(parents=True, exist_ok=True)
    folder = BUILT / _digest(source)
    name = f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    with open(BUILT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of a parallel run build once
        if not folder.exists():
            made = Path(tempfile.mkdtemp(dir=BUILT))
            _build(compiler, source, made, name)
            made.rename(folder)
    return folder / name


def _digest(source: Path) -> str:
    """Of all that a library is made of."""
    native = Path(rocketstore.__path__[0]) / "_native"
    parts = [source, *source.parent.glob("*.h"), *native.rglob("*.pxd"), *native.rglob("*.h")]
    digest = hashlib.sha256(f"{sys.version} {PACKAGE_PARENT}".encode())
    for path in sorted(parts):
        digest.update(f"{path.name} ".encode() + path.read_bytes())
    return f"{source.stem}-{digest.hexdigest()[:16]}"


def _build(compiler: str, source: Path, directory: Path, name: str) -> None:
    c_file = directory / f"{source.stem}.c"
    cython = [sys.executable, "-m", "cython", "-3", f"-I{PACKAGE_PARENT}"]
    _run([*cython, "-o", str(c_file), str(source)])
    include = [f"-I{sysconfig.get_path('include')}", f"-I{source.parent}"]
    output = directory / name
    _run([compiler, "-O1", "-fPIC", "-shared", "-w", *include, str(c_file), "-o", str(output)])


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
