"""docs/testing.md is a test module: what it shows to users passes as it is printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "testing.md").read_text(encoding="utf-8"))
    module = tmp_path / "test_page.py"
    module.write_text("\n\n".join(blocks), encoding="utf-8")
    tests = sum(block.count("\ndef test_") + block.startswith("def test_") for block in blocks)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    run = subprocess.run(
        [*command, "-W", "error", "--basetemp", tmp_path / "base", module],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{tests} passed" in run.stdout, run.stdout
