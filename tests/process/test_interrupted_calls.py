"""Handlers that raise at any moment of a call: the store closes, and what was acknowledged is there (K-01)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.process.interrupted_calls import KINDS
from tests.support.paths import ROOT

#: Interrupts of each kind of call.
TIMES = int(os.environ.get("ROCKETSTORE_INTERRUPTS") or 300)
#: Of a process that hangs, seconds.
LIMIT_S = 60 + TIMES // 4
pytestmark = pytest.mark.timeout(LIMIT_S + 120)


@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_are_interrupted(tmp_path: Path, kind: str, random_seed: int) -> None:
    """The process is ended from inside, by a thread of C, and from outside: its alarms disarm neither."""
    arguments = [kind, str(tmp_path / "s"), str(TIMES), str(random_seed), str(LIMIT_S)]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.process.interrupted_calls", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S + 60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-6000:]}"
    said = json.loads(done.stdout)
    assert said["interrupts"] == TIMES and said["acknowledged"] > 0
    took_s = time.monotonic() - began
    print(f"{kind}: {TIMES} interrupts, {said['acknowledged']} acknowledged, {took_s:.0f} s")
