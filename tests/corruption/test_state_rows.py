"""Whether the campaign of state files has each file, mode and command (tests/corruption/mutated_states.py)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import pytest

from rocketstore.log.layout import destroy
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.values.bounded_json import LIMITS
from tests.corruption.hostile_commands import CALLS, NO_STORE, SLOW, names
from tests.corruption.hostile_faces import run_face
from tests.corruption.mutated_states import MODES, OF_COPIES, OTHERS, StateCampaign, plan
from tests.corruption.state_files import FILES, row_of
from tests.support.paths import ROOT

ROW = re.compile(r"^\| `([a-z_.]+)/?[^`]*` \|", re.MULTILINE)
PLACES = ("config", "rocketstore")


def without_a_row(paths: Iterable[str]) -> list[str]:
    """Neither a file with a row, nor a directory of such a file."""
    return [
        path
        for path in paths
        if row_of(path) is None and not any(row.startswith(f"{path}/") for row in FILES)
    ]


def test_every_path_of_a_layout_has_a_row(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path)
    kinds = [name for name, kind in vars(StoreLayout).items() if isinstance(kind, cached_property)]
    paths = [path for name in kinds if isinstance(path := getattr(layout, name), Path)]
    below = [path.relative_to(tmp_path) for path in paths]
    found = [str(path) for path in below if path.parts[:1] and path.parts[0] in PLACES]
    assert len(found) > 20
    assert without_a_row(found) == []


def test_every_name_that_is_removed_or_described_has_a_row() -> None:
    described = ROW.findall((ROOT / "docs/format/own.md").read_text().partition("\n### ")[0])
    assert len(described) > 15
    assert without_a_row(f"rocketstore/{name}" for name in (*destroy.OWN_NAMES, *described)) == []


def test_every_file_with_limits_has_a_row() -> None:
    named = {Path(row).name for row in FILES}
    assert {name for name in LIMITS if name.endswith(".json")} <= named


def test_every_command_has_a_call() -> None:
    assert names() == {*CALLS, *NO_STORE}


@pytest.mark.parametrize("first", [0, 777, 4_000_000_001])
def test_each_file_meets_each_mode_and_each_command(first: int) -> None:
    """In a number of stores that a campaign of some minutes makes."""
    commands = [*CALLS, *OTHERS]
    rounds = len(FILES) * max(len(MODES), len(commands))
    plans = [plan(first + turn, commands) for turn in range(rounds)]
    modes = {(file, mode) for file, mode, _ in plans[: len(FILES) * len(MODES)]}
    assert modes == {(file, mode) for file in FILES for mode in MODES}
    assert {(file, name) for file, _, name in plans} == {(f, n) for f in FILES for n in commands}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> StateCampaign:
    return StateCampaign(tmp_path_factory.mktemp("rows") / "work", 1)


def test_every_file_of_the_sound_stores_has_a_row(campaign: StateCampaign) -> None:
    found = {
        str(path.relative_to(root))
        for root in (campaign.work / "sound").iterdir()
        for place in PLACES
        for path in (root / place).rglob("*")
        if path.is_file()
    }
    assert len(found) > 11
    assert without_a_row(found) == []


def test_each_face_opens_a_sound_store(campaign: StateCampaign) -> None:
    """No call has wrong arguments, or an error that has no type."""
    faults = []
    for turn in range(max(map(len, CALLS.values()))):
        for name, face in campaign.faces(turn).items():
            if name in SLOW or (turn and turn >= len(CALLS.get(name, ()))):
                continue
            store = campaign.work / "store"
            shutil.rmtree(store, ignore_errors=True)
            base = "copy" if name in OF_COPIES else "closed"
            shutil.copytree(campaign.work / "sound" / base, store)
            outcome = run_face(name, store, {name: face})
            if outcome.error or outcome.signal:
                faults.append(f"{name}, call {turn}: {outcome.error}, signal {outcome.signal}")
    assert faults == []


#: A path that a call has, or a name and the directory that its descriptor leads to.
NAMED = re.compile(r'(?:[0-9]+<([^>]*)>, )?"([^"]*)"')
LOOKING = """
import sys
from functools import cached_property
from pathlib import Path
from tests.corruption.hostile_commands import command_faces
from tests.corruption.mutated_states import MODES
from tests.corruption.hostile_faces import run_face
store, sound, side = map(Path, sys.argv[1:])
faces = {**MODES, **command_faces(sound, side, 0)}
for name in ("r", "untrusted", "verify", "rw", "recover", "rebuild", "trim"):
    outcome = run_face(name, store, faces)
    assert not outcome.error, (name, outcome.error)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("bare", [False, True], ids=["as it was", "without state"])
def test_every_name_that_is_looked_up_has_a_row(
    campaign: StateCampaign, tmp_path: Path, *, bare: bool
) -> None:
    """Also names that are not there, which an author may put there."""
    store, trace = tmp_path / "store", tmp_path / "trace"
    sound = campaign.work / "sound/closed"
    shutil.copytree(sound, store)
    if bare:
        for path in store.rglob("*"):
            if path.is_file() and path.relative_to(store).parts[0] in PLACES:
                path.unlink()
    strace = ["strace", "-f", "-y", "-qq", "-e", "trace=%file", "-o", trace]
    looking = [sys.executable, "-c", LOOKING, store, sound, tmp_path / "side"]
    subprocess.run([*strace, *looking], cwd=ROOT, check=True)
    found = set()
    for directory, name in NAMED.findall(trace.read_text(errors="replace")):
        path = os.path.normpath(os.path.join(directory, name))
        if path.startswith(f"{store}/"):
            found.add(os.path.relpath(path, store))
    looked_up = {path for path in found if path.partition("/")[0] in PLACES}
    assert len(looked_up) > 20
    assert without_a_row(sorted(looked_up)) == []
