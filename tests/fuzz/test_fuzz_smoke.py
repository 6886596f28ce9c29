"""Each fuzz target is built with plain `cc` and run for a moment; the harness catches planted faults."""

from __future__ import annotations

import fcntl
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

HERE = Path(__file__).parent
#: Where `make fuzz` builds, too: what has not changed is not built again.
BUILT = ROOT / "build" / "fuzz"
#: About two seconds each, compared with about twenty of `make fuzz`.
RUNS = {
    "record": 100_000,
    "properties": 200_000,
    "scan": 10_000,
    "queue": 30_000,
    "index": 60_000,
    "filter": 400_000,
    "columns": 20_000,
}

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("make") is None, reason="needs a C compiler and make"
)


def make(build: Path, *goals: str, folder: Path = HERE) -> None:
    command = ["make", "-s", "-j2", "-C", str(folder), f"BUILD={build}", *goals]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """In the directory of the program: that is where `crash.bin` goes."""
    return subprocess.run(
        [program, *map(str, arguments)],
        cwd=program.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of its own, with the programs and seeds: an input that fails is written there."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with open(BUILT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of a parallel run build once
        make(BUILT, "all", "seeds")
    directory = tmp_path_factory.mktemp("fuzz")
    for path in BUILT.iterdir():
        if path.name in ("seeds", "canary") or path.name.startswith("fuzz_"):
            (directory / path.name).symlink_to(path)
    return directory


def test_every_target_of_the_makefile_is_run_here() -> None:
    [row] = re.findall(r"^TARGETS := (.+)$", (HERE / "Makefile").read_text(), re.MULTILINE)
    assert sorted(row.split()) == sorted(RUNS) == sorted(p.stem[5:] for p in HERE.glob("fuzz_*.c"))


@pytest.mark.parametrize("target", RUNS)
def test_target_survives(build: Path, target: str, random_seed: int) -> None:
    program = build / f"fuzz_{target}"
    done = run(program, f"-runs={RUNS[target]}", f"-seed={random_seed}", f"seeds/{target}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {random_seed}, " in done.stdout
    assert f"done: {RUNS[target]} runs" in done.stdout


def test_a_planted_overread_of_one_byte_is_caught(build: Path) -> None:
    done = run(build / "canary", "seeds/record")
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
    assert (build / "crash.bin").read_bytes() == (build / "seeds" / "record" / "000").read_bytes()


def test_a_cursor_that_does_not_compare_is_caught(build: Path, tmp_path: Path) -> None:
    """The guard of csrc taken out: mutations of good records must find that at once."""
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    shutil.copytree(HERE, tmp_path / "tests" / "fuzz")
    cursor = tmp_path / "csrc" / "rs_cursor.h"
    guard = "if ((size_t)(r->end - r->at) < n)"
    assert guard in cursor.read_text()
    cursor.write_text(cursor.read_text().replace(guard, "if (false)"))
    make(tmp_path, str(tmp_path / "fuzz_record"), folder=tmp_path / "tests" / "fuzz")
    done = run(tmp_path / "fuzz_record", "-runs=20000", "-seed=1", build / "seeds" / "record")
    assert done.returncode != 0
    assert (tmp_path / "crash.bin").exists()


#: A check of csrc taken out: the target that has to notice, the file, the check, and what is there instead.
PLANTED = [
    ("scan", "rs_scan.c", "position, scan->size - position,", "position, scan->size,"),
    ("queue", "rs_queue_file.c", "left = n; left < count;", "left = n; left <= count;"),
    ("queue", "rs_unit_reader.c", "<= checked->last_physical_offset", "< 0"),
    ("index", "rs_index_file.c", "value >= 1 && value <= next && value < entries", "next > 0"),
]  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize(("target", "file", "check", "instead"), PLANTED)
def test_a_check_that_is_taken_out_is_noticed(
    build: Path, tmp_path: Path, target: str, file: str, check: str, instead: str
) -> None:
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    shutil.copytree(HERE, tmp_path / "tests" / "fuzz")
    source = tmp_path / "csrc" / file
    assert check in source.read_text()
    source.write_text(source.read_text().replace(check, instead))
    make(tmp_path, str(tmp_path / f"fuzz_{target}"), folder=tmp_path / "tests" / "fuzz")
    done = run(tmp_path / f"fuzz_{target}", "-runs=20000", "-seed=1", build / "seeds" / target)
    assert done.returncode != 0
    assert (tmp_path / "crash.bin").exists()


def test_a_seed_repeats_a_failure(build: Path) -> None:
    """From inputs on which the canary does not die at once: the first mutation that grows kills it."""
    empty = build / "empty"
    empty.write_bytes(b"")
    seed = random.Random(7).getrandbits(32)
    found = set()
    for _ in range(2):
        (build / "crash.bin").unlink(missing_ok=True)
        assert run(build / "canary", "-runs=1000", f"-seed={seed}", empty).returncode != 0
        found.add((build / "crash.bin").read_bytes())
    assert len(found) == 1


def test_an_input_that_cannot_be_read_fails_the_run(build: Path) -> None:
    done = run(build / "fuzz_scan", "seeds/scan", "no-such-file")
    assert done.returncode == 2
    assert "no-such-file" in done.stderr
