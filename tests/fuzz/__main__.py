"""Every fuzz target for the same time, one after the other: `python -m tests.fuzz [SECONDS EACH] [--seed N]`.

Without SECONDS: those of a whole run, or 20. Each target prints its seed; `--seed` gives it to all.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support import campaign
from tests.support.paths import ROOT

HERE = Path(__file__).parent
BUILD = ROOT / "build" / "fuzz"
#: Seconds of each target.
ALONE_S, LEAST_S = 20, 3


def targets() -> list[str]:
    [row] = re.findall(r"^TARGETS := (.+)$", (HERE / "Makefile").read_text(), re.MULTILINE)
    names: list[str] = row.split()
    return names


def fuzz(target: str, seconds: float, seed: int | None) -> int:
    """How many inputs were run. An input that fails ends all: it lies in `crash.bin`."""
    command = [str(BUILD / f"fuzz_{target}"), f"-max_total_time={max(1, round(seconds))}"]
    command += [f"-seed={seed}"] if seed is not None else []
    print(f"{target}:", flush=True)
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        done = subprocess.run([*command, f"seeds/{target}"], cwd=BUILD, stdout=said, check=False)
        said.seek(0)
        text = said.read()
    print(text, end="", flush=True)
    if done.returncode != 0:
        replay = f"make -C tests/fuzz replay TARGET={target} INPUT={BUILD}/crash.bin"
        raise SystemExit(f"{target} fails; {replay}")
    [runs] = re.findall(r"^done: (\d+) runs$", text, re.MULTILINE)
    return int(runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("seconds", type=int, nargs="?", help="for each target")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=1, help="of the build")
    given = parser.parse_args()
    make = ["make", "-C", str(HERE), f"-j{given.jobs}", f"PYTHON={sys.executable}", "all", "canary"]
    subprocess.run(make, check=True)
    running = campaign.begin("fuzzing")
    names = targets()
    of_the_run = running.seconds
    began = time.monotonic()
    for number, target in enumerate(names):
        if given.seconds is not None:
            seconds = float(given.seconds)
        elif of_the_run is None:
            seconds = float(ALONE_S)
        else:
            left = of_the_run - (time.monotonic() - began)
            seconds = max(float(LEAST_S), left / (len(names) - number))
        running.did += fuzz(target, seconds, given.seed)
    running.end()


if __name__ == "__main__":
    main()
