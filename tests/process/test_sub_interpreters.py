"""Sub-interpreters: one interpreter of a process has the native part, every other one is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rocketstore

PROGRAM = """
import sys
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string
import rocketstore
rocketstore.open

second = interpreters.create()
run(second, f\"\"\"
import sys
sys.path[:] = {sys.path!r}
try:
    import rocketstore
    rocketstore.open
except ImportError as error:
    print("ImportError", error, flush=True)
\"\"\")
print(rocketstore.StoreConfig().durability, flush=True)
"""


def test_a_second_interpreter_cannot_import(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env={"PYTHONPATH": str(Path(rocketstore.__path__[0]).parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    told, alive = done.stdout.splitlines()
    assert told.startswith("ImportError"), done
    assert (alive, done.returncode) == ("disk", 0), done
