"""A sub-interpreter opens no store: it could not end while the threads of one run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rocketstore

PROGRAM = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
code = f'''
import sys
sys.path[:0] = {sys.path!r}
try:
    import rocketstore
    rocketstore.open({sys.argv[1]!r}, {sys.argv[2]!r})
except (ImportError, RuntimeError) as error:
    print(error)
'''
one = interpreters.create() if sys.argv[3] == "isolated" else %s
(interpreters.run_string if hasattr(interpreters, "run_string") else interpreters.exec)(one, code)
print("end", flush=True)
"""
LEGACY = (
    "interpreters.create('legacy')"
    if sys.version_info >= (3, 13)
    else "interpreters.create(isolated=False)"
)


@pytest.mark.parametrize("kind", ["isolated", "legacy"])
@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_sub_interpreter_hears_why_and_the_process_ends(
    tmp_path: Path, mode: str, kind: str
) -> None:
    """Before: an abort at the end of the process, or no end at all."""
    with rocketstore.open(tmp_path / "s") as store:
        store.writer("t").put(b"x")
    arguments = [sys.executable, "-c", PROGRAM % LEGACY, str(tmp_path / "s"), mode, kind]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    if "does not support loading in subinterpreters" in run.stdout + run.stderr:
        pytest.skip("this Python loads no module of C there")
    assert run.returncode == 0, run.stderr
    assert "main interpreter of a process alone" in run.stdout
    assert run.stdout.endswith("end\n")
