"""Faults planted into a copy of the sources, one at a time: the model tests have to catch each.

A test suite that passes with a fault in the code proves nothing. The faults live here, as edits of the
sources, never in the product: release builds have no fault switch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.proof

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("csrc", "rocketstore", "tests", "setup.py", "pyproject.toml", "README.md", "LICENSE")


@dataclass(frozen=True)
class Fault:
    """`old` is replaced by `new` in `path`; `extensions` are built again."""

    id: str
    path: str
    old: str
    new: str
    extensions: str = ""


FAULTS = (
    Fault(
        "forget_the_blank",
        "csrc/rs_log_file.c",
        "rs_store32(blank + RS_AT_MAGIC, RS_MAGIC_BLANK);",
        "(void)blank;",
        "appender",
    ),
    Fault(
        "skip_one_dispatch",
        "rocketstore/_native/dispatcher.pyx",
        "            reason = self.dispatch()\n",
        "            reason = self.dispatch() if self.records % 7 != 3 else REASON_DONE\n",
        "dispatcher",
    ),
    Fault(
        "truncate_in_memory_only",
        "rocketstore/log/log_repair.py",
        "            syscalls.pwrite(file.fd, bytes(count), position)\n",
        "",
    ),
    Fault(
        "off_by_one_roll",
        "csrc/rs_log_file.c",
        "bool roll = size + RS_BLANK_SIZE_MIN > left;",
        "bool roll = size + RS_BLANK_SIZE_MIN > left + 1;",
        "appender",
    ),
)


def plant(fault: Fault, tree: Path) -> None:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "stores", ".hypothesis")
            shutil.copytree(source, tree / part, ignore=ignore)
        elif source.exists():
            shutil.copy2(source, tree / part)
    target = tree / fault.path
    text = target.read_text()
    assert text.count(fault.old) == 1, f"{fault.id}: {fault.path} no longer has the line to change"
    target.write_text(text.replace(fault.old, fault.new))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_planted_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    """D-29: the state machine fails with the fault, by a failed step: nothing cut comes back, too."""
    tree = tmp_path / "tree"
    tree.mkdir()
    plant(fault, tree)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "ROCKETSTORE_MACHINE_EXAMPLES": "80",
        "ROCKETSTORE_MACHINE_SHRINK": "0",
    }
    if fault.extensions:
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(
            build,
            cwd=tree,
            env={**environment, "ROCKETSTORE_ONLY": fault.extensions},
            check=True,
            capture_output=True,
        )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/model"],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, f"not caught:\n{run.stdout[-3000:]}\n{run.stderr[-2000:]}"
    assert "1 failed" in run.stdout, run.stdout[-3000:]
