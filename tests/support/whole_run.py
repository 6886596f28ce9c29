"""Runs the parts of tests/support/budget.py on two cores, and says at the end what each did in which time.

    python -m tests.support.whole_run             all parts
    python -m tests.support.whole_run --proofs    without lint and the tests, which ran before
    python -m tests.support.whole_run --only crash --only fuzz

The output of a part is shown whole when the part ends. After a failure no further part begins.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.support.budget import PARTS, Part, Plan, ci_seconds
from tests.support.campaign import GIVEN, reported, without
from tests.support.paths import ROOT

__all__ = ["Outcome", "WholeRun", "table"]

#: A part that takes so many times what the table says, and these seconds besides, hangs.
PATIENCE = 4
PATIENCE_S = 600
#: Seconds between two looks at the parts that run.
LOOK_S = 0.2

Command = Callable[[Part, int], list[str]]


@dataclass
class Outcome:
    """How one part ended."""

    part: Part
    seconds: float
    given: dict[str, float]
    did: dict[str, tuple[int, float]]
    #: "" when it passed.
    wrong: str = ""


@dataclass
class _Process:
    part: Part
    process: subprocess.Popen[bytes]
    began: float
    given: dict[str, float]
    output: Path
    report: Path


def make(part: Part, cores: int) -> list[str]:
    """The command of a part."""
    if part.target == "test":
        return [sys.executable, "-m", "tests.support.flakes", f"JOBS={cores}"]
    return ["make", "--no-print-directory", part.target, f"JOBS={cores}"]


class WholeRun:
    """Begins what a plan says, as processes of their own, and looks after them."""

    def __init__(self, plan: Plan, spent_s: float, command: Command = make) -> None:
        self._plan = plan
        self._zero = time.monotonic() - spent_s
        self._command = command
        self._processes: list[_Process] = []
        self.outcomes: list[Outcome] = []

    @property
    def now(self) -> float:
        """Seconds of the whole run so far."""
        return time.monotonic() - self._zero

    def run(self) -> bool:
        """Whether all parts passed."""
        passed = True
        with tempfile.TemporaryDirectory(prefix="rocketstore-run-") as folder:
            try:
                while self._processes or (passed and self._plan.waiting()):
                    while passed and (part := self._plan.next()) is not None:
                        self._begin(part, Path(folder))
                    for running in self._ended():
                        passed &= self._finish(running)
                    time.sleep(LOOK_S)
            finally:
                for running in self._processes:
                    stop(running.process)
                    show(running.output, f"{running.part.target}: not ended")
        return passed

    def _begin(self, part: Part, folder: Path) -> None:
        given = self._plan.begin(part, self.now)
        report, output = folder / f"{part.target}.report", folder / f"{part.target}.output"
        budget = {"seconds": given, "report": str(report), "began": time.time()}
        said = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in given.items())
        print(f"--- {self.now:5.0f} s: {part.target} begins {said}".rstrip(), flush=True)
        with output.open("wb") as file:
            process = subprocess.Popen(
                self._command(part, part.cores),
                cwd=ROOT,
                env={**without(os.environ), GIVEN: json.dumps(budget)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(_Process(part, process, self.now, given, output, report))

    def _ended(self) -> Iterator[_Process]:
        for running in list(self._processes):
            if running.process.poll() is not None or self.now > self._limit(running):
                yield running

    def _limit(self, running: _Process) -> float:
        planned = running.part.fixed_s + sum(running.given.values())
        return running.began + PATIENCE * planned + PATIENCE_S

    def _finish(self, running: _Process) -> bool:
        code = running.process.poll()
        wrong = "" if code == 0 else f"ended with {code}"
        if code is None:
            wrong = f"did not end in {self.now - running.began:.0f} s"
            stop(running.process)
        self._processes.remove(running)
        self._plan.end(running.part, self.now)
        took_s = self.now - running.began
        verdict = f"FAILED, {wrong}" if wrong else "passed"
        show(running.output, f"{running.part.target}: {verdict} ({took_s:.0f} s)")
        did = reported(running.report)
        self.outcomes.append(Outcome(running.part, took_s, running.given, did, wrong))
        return not wrong


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a part with all its processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)


def show(output: Path, title: str) -> None:
    print(f"\n=== {title}", flush=True)
    sys.stdout.buffer.write(output.read_bytes())
    sys.stdout.buffer.flush()


def table(outcomes: list[Outcome], took_s: float, seconds: float) -> Iterator[str]:
    """One line for each part and each campaign."""
    yield f"{'part':32} {'seconds':>8} {'did':>12} {'aim':>12}"
    for outcome in outcomes:
        note = f"  FAILED, {outcome.wrong}" if outcome.wrong else ""
        yield f"{outcome.part.target:32} {outcome.seconds:8.0f}{note}"
        for campaign in outcome.part.campaigns:
            did, used_s = outcome.did.get(campaign.name, (0, 0.0))
            less = "  less than aimed" if did < campaign.aim else ""
            name = f"  {campaign.name}, {campaign.unit}"
            yield f"{name:32} {used_s:8.0f} {did:12,} {campaign.aim:12,}{less}"
    over = "" if took_s <= seconds else ": longer than its time, since fixed work alone took longer"
    yield f"{took_s:.0f} of {seconds:.0f} s{over}"


def chosen(only: list[str], *, proofs: bool) -> tuple[Part, ...]:
    parts = [part for part in PARTS if not (proofs and part.first)]
    if only:
        parts = [part for part in parts if part.target in only]
    return tuple(parts)


def terminated(number: int, frame: FrameType | None) -> None:
    """Ends the run as an error does, so that the parts are stopped and shown."""
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.whole_run",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--proofs", action="store_true", help="without lint and test")
    parser.add_argument("--only", action="append", default=[], metavar="PART",
                        choices=[part.target for part in PARTS], help="one part; may be repeated")  # fmt: skip
    parser.add_argument("--spent", type=float, default=0.0, help="seconds of the run so far")
    given = parser.parse_args()
    seconds = ci_seconds()
    signal.signal(signal.SIGTERM, terminated)
    run = WholeRun(Plan(seconds, chosen(given.only, proofs=given.proofs)), given.spent)
    passed = run.run()
    print()
    for line in table(run.outcomes, run.now, seconds):
        print(line)
    print("all passed" if passed else "FAILED", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
