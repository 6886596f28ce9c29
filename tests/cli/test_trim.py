"""trim: what goes, what stays and why; a dry run; wrong arguments."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import rocketstore
from tests.support.small_store import SEGMENT, dispatched, open_small, segments
from tests.support.waiting import pause


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    with open_small(path) as store:
        for n in range(60):
            store.put_message("orders", b"%02d" % n * 150)
        dispatched(store)
    return path


def test_a_dry_run_then_the_run(invoke, filled: Path) -> None:
    names = [path.name for path in segments(filled)]
    most = ("--max-bytes", 4 * SEGMENT)
    said = invoke("trim", "--dry-run", *most, filled)
    assert said.exit_code == 0, said.stderr
    assert [path.name for path in segments(filled)] == names
    done = invoke("trim", *most, filled)
    assert done.output == said.output
    assert [path.name for path in segments(filled)] == names[-4:]
    lines = done.output.splitlines()
    assert lines[0].startswith(f"{len(names) - 4} segments of {len(names)} go, ")
    assert lines[1].startswith(f"{names[0]} goes: the log has ")
    assert lines[-1] == f"{names[-1]} stays: the last segment always stays"
    report = json.loads(invoke("trim", "--dry-run", "--json", *most, filled).output)
    assert (report["count"], report["bytes"], len(report["segments"])) == (0, 0, 4)


def test_a_dry_run_of_a_store_that_is_open(invoke, filled: Path) -> None:
    with open_small(filled):
        said = invoke("trim", "--dry-run", "--before", round(time.time() * 1000) - 1, filled)
        assert said.exit_code == 0, said.stderr
        assert "goes: older than" in said.output
        locked = invoke("trim", "--max-bytes", "4K", filled)
        assert locked.exit_code == 4, locked.output


def test_ages_and_holds(invoke, filled: Path) -> None:
    said = invoke("trim", "--max-age", "1h", filled)
    assert said.output.startswith("0 segments of ")
    assert "old, max_age is 1:00:00" in said.output
    pause(1.1)
    for held, why in (
        (("--keep-unshipped",), "never shipped (from 0)"),
        (("--keep-unconsumed-by", "b\x1b[1m"), r"group b\x1b[1m has stored no offset yet"),
    ):
        said = invoke("trim", "--max-age", "1s", *held, filled)
        assert said.exit_code == 0, said.stderr
        assert why in said.output
        assert said.output.startswith("0 segments of ")
    said = invoke("trim", "--max-age", "1s", "--keep-unconsumed-by", "all", filled)
    assert not said.output.startswith("0 segments of ")
    with rocketstore.open(filled, "r") as store:
        assert store.begin_offset > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give --before, --max-age or --max-bytes"),
        (("--max-age", "7"), "no span above 0, such as 90m, 12h, 7d or 2w"),
        (("--max-age", "0d"), "no span above 0"),
        (("--max-age", "999999999w"), "longer than any clock counts"),
        (("--max-bytes", "0"), "no size above 0, such as 50G or 1048576"),
        (("--max-bytes", "-1"), "no size above 0"),
        (("--before", "2999-01-01T00:00:00Z"), "is to come"),
        (("--before", "5", "--max-age", "1d"), "give one of them"),
        (
            ("--max-age", "1d", "--keep-unconsumed-by", "all", "--keep-unconsumed-by", "b"),
            "includes every other group",
        ),
    ],
)
def test_wrong_arguments(invoke, filled: Path, words: tuple[str, ...], said: str) -> None:
    result = invoke("trim", *words, filled)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert len(segments(filled)) > 5
