"""`make test`, and each test that failed in it three times more, alone: a test that then passes is a flake.

    python -m tests.support.flakes JOBS=2

A flake is shown under a heading of its own with its failure, and the run goes on; tests/flakes.md lists those that
were seen. What failed is tried again only where a few tests failed and no process died: a fault of memory shows
itself as rarely as a race. Proofs, crash images and histories are never tried again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.paths import ROOT

__all__ = ["AGAIN", "MOST", "failures", "flakes_of", "judged"]

#: Times that a test has to pass alone.
AGAIN = 3
#: Failed tests in one run that may all be flakes; more are a fault.
MOST = 5
#: Where pytest notes the tests that failed.
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
#: What pytest-xdist says of a test whose process died.
DIED = "crashed while running"


def failures(output: str) -> str:
    """What pytest shows of the tests that failed, with their seeds."""
    found = re.search(r"^=+ FAILURES =+\n(.*?)^=+ short test summary", output, re.S | re.M)
    return found.group(1) if found else output[-10_000:]


def flakes_of(failed: list[str], output: str, passes: Callable[[str], bool]) -> list[str]:
    """The tests that failed, if each of them is a flake; empty: at least one is none."""
    if not failed or len(failed) > MOST or DIED in output:
        return []
    return failed if all(passes(test) for test in failed for _ in range(AGAIN)) else []


def judged(code: int, failed: list[str], output: str, passes: Callable[[str], bool]) -> int:
    """The exit code of the run; says which tests were flakes."""
    if code == 0:
        return 0
    flakes = flakes_of(failed, output, passes)
    if not flakes:
        return code
    print(f"\n=== flakes: failed once, then passed {AGAIN} times alone")
    print(*flakes, sep="\n")
    print(failures(output), flush=True)
    return 0


def noted(file: Path) -> list[str]:
    """The tests that the last run of pytest noted as failed."""
    return list(json.loads(file.read_text())) if file.exists() else []


def alone(test: str) -> bool:
    """Whether it passes by itself; skipped tests did not."""
    print(f"again, alone: {test}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    memory = os.environ.get("MEMORY", "/dev/shm")  # where `make test` has its stores
    place = {**os.environ, "ROCKETSTORE_IN_MEMORY": memory}
    ended = subprocess.run(
        command, cwd=ROOT, env=place, capture_output=True, text=True, check=False
    )
    passed = ended.returncode == 0 and re.search(r"^1 passed", ended.stdout, re.M) is not None
    if not passed:
        print(ended.stdout, ended.stderr, flush=True)
    return passed


def main() -> int:
    FAILED.unlink(missing_ok=True)
    command = ["make", "--no-print-directory", "test", *sys.argv[1:]]
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        code = process.wait()
    return judged(code, noted(FAILED), "".join(lines), alone)


if __name__ == "__main__":
    sys.exit(main())
