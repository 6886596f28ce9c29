"""Changes the code at random, a place at a time, and lists the changes that no test notices.

    python -m tests.mutation --csrc 60 --recovery 60 --seed 1

A change of `csrc` is tried on tests/cross_arch/sums.c and the fuzz targets first, which takes seconds, and on
tests/unit and tests/vectors/test_vectors.py, built anew, when these notice nothing; a change of recovery on the
tests of recovery. A change that means the same as before is not told apart: look at each that is listed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutation.mutations import Mutation, of_c, of_python
from tests.support.paths import ROOT

PARTS = (
    "csrc",
    "rocketstore",
    "tests",
    "build",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
RECOVERY = (
    "log/recovery/recovery.py",
    "log/recovery/marks.py",
    "log/recovery/progress.py",
    "log/recovery/batches.py",
    "log/follow/log_view.py",
    "log/recovery/repair.py",
    "log/recovery/walk.py",
    "log/recovery/quarantine.py",
    "log/recovery/missing_segments.py",
    "engine/catch_up.py",
)
TESTS_OF_RECOVERY = (
    ["tests/log/recovery", "tests/log/commitlog/test_lost_power.py"],
    ["tests/log", "-k", "recovery", "--ignore=tests/log/recovery"],
    ["tests/api", "-k", "recover or crash or damage or missing or directories"],
    ["tests/process/test_kill.py", "tests/model"],
)
TARGETS = (*("record", "properties", "scan", "queue", "index", "columns", "filter"),)


class Tree:
    """A copy of the sources in which one thing at a time is changed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                left_out = {"sanitize", "interop", "tsan", "coverage"} if part == "build" else set()
                ignore = shutil.ignore_patterns("__pycache__", *left_out)
                shutil.copytree(source, root / part, ignore=ignore, symlinks=True)
            elif source.exists():
                shutil.copy2(source, root / part)
        self.sums = self._sums()
        assert self.sums, "sums.c fails without any change"
        assert self._pytest(["--collect-only", "tests/unit", "tests/log", "tests/api"], 300), (
            "no tests to notice anything"
        )

    def _run(self, *command: object, seconds: float) -> subprocess.CompletedProcess[str] | None:
        """None: it takes too long, which is noticed too."""
        environment = {**os.environ, "PYTHONPATH": str(self.root), "ROCKETSTORE_DEBUG": "1"}
        try:
            return subprocess.run(
                [str(part) for part in command],
                cwd=self.root,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None

    def _sums(self) -> str:
        sources = sorted((self.root / "csrc").glob("*.c"))
        program = self.root / "sums"
        main = "tests/cross_arch/sums.c"
        built = self._run("cc", "-O1", "-Icsrc", "-o", program, main, *sources, seconds=120)
        if built is None or built.returncode:
            return ""
        done = self._run(program, seconds=30)
        return done.stdout if done and done.returncode == 0 else ""

    def _pytest(self, tests: list[str], seconds: float) -> bool:
        done = self._run(
            sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
            f"--basetemp={self.root}/tmp", *tests, seconds=seconds,
        )  # fmt: skip
        return done is not None and done.returncode == 0

    def _native_survives(self, mutation: Mutation) -> str:
        if self._sums() != self.sums:
            return "sums"
        fuzz = ("make", "-s", "-C", "tests/fuzz", f"BUILD={self.root}/build/fuzz")
        built = self._run(*fuzz, f"PYTHON={sys.executable}", "all", "seeds", seconds=300)
        if built is None or built.returncode:
            return "build"
        for target in TARGETS:
            program = self.root / "build" / "fuzz" / f"fuzz_{target}"
            seeds = program.parent / "seeds" / target
            done = self._run(program, "-runs=3000", "-seed=1", seeds, seconds=120)
            if done is None or done.returncode:
                return f"fuzz {target}"
        self.rebuilt = True
        built = self._run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", seconds=600)
        if built is None or built.returncode:
            return "build"
        return (
            ""
            if self._pytest(["tests/unit", "tests/vectors/test_vectors.py"], 900)
            else "unit tests"
        )

    def noticed(self, mutation: Mutation) -> str:
        """By what; empty when by nothing."""
        path = self.root / mutation.path
        before = path.read_text()
        kept = {p: p.read_bytes() for p in (self.root / "rocketstore/_native").glob("*/*.so")}
        self.rebuilt = False
        path.write_text(mutation.apply(before))
        try:
            if mutation.path.startswith("csrc/"):
                return self._native_survives(mutation)
            for tests in TESTS_OF_RECOVERY:
                if not self._pytest(tests, 900):
                    return " ".join(tests)
            return ""
        finally:
            path.write_text(before)
            for library, data in kept.items():
                if self.rebuilt:
                    library.write_bytes(data)


def sample(rng: random.Random, count: int, mutations: list[Mutation]) -> list[Mutation]:
    return rng.sample(mutations, min(count, len(mutations)))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--csrc", type=int, default=40, help="changes of csrc (default 40)")
    parser.add_argument("--recovery", type=int, default=40, help="changes of recovery (default 40)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    rng = random.Random(seed)
    native = [
        mutation
        for path in sorted((ROOT / "csrc").glob("*.c"))
        for mutation in of_c(f"csrc/{path.name}", path.read_text())
    ]
    recovery = [
        mutation
        for name in RECOVERY
        for mutation in of_python(f"rocketstore/{name}", (ROOT / "rocketstore" / name).read_text())
    ]
    print(f"seed {seed}; {len(native)} places in csrc, {len(recovery)} in recovery", flush=True)
    chosen = sample(rng, arguments.csrc, native) + sample(rng, arguments.recovery, recovery)
    unnoticed = 0
    with tempfile.TemporaryDirectory(prefix="rocketstore-mutants-") as folder:
        tree = Tree(Path(folder) / "tree")
        for number, mutation in enumerate(chosen, 1):
            by = tree.noticed(mutation)
            unnoticed += not by
            print(f"{number}/{len(chosen)} {mutation}: {by or 'NOT NOTICED'}", flush=True)
    print(f"{len(chosen) - unnoticed} of {len(chosen)} changes noticed (seed {seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
