"""The guard of the speed: what bench/check.py calls worse, and the baseline that it reads."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from bench.check import BASELINE, main, unseen, worse
from bench.counted import COUNTED
from bench.peer_cases import CASES, OURS
from bench.ratios import DISK, DISPATCH, NAMES

pytestmark = pytest.mark.quick

BEFORE: dict[str, Any] = {
    "python": "3.11",
    "machine": "x86_64",
    "ratios": {"put": 4.0},
    "instructions": {"put": 1000},
}


def now(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(BEFORE), **changes}


def test_noise_is_not_worse() -> None:
    assert worse(now(ratios={"put": 2.7}, instructions={"put": 1099}), BEFORE) == []


def test_a_third_lost_is_worse() -> None:
    assert worse(now(ratios={"put": 2.5}), BEFORE) == ["put: 2.50, was 4.00"]


def test_more_instructions_are_worse() -> None:
    found = worse(now(instructions={"put": 1101}), BEFORE)
    assert found == ["put: 1101 instructions, were 1000"]


@pytest.mark.parametrize("key", ["python", "machine"])
def test_counts_of_another_kind_do_not_compare(key: str) -> None:
    assert worse(now(instructions={"put": 9999}, **{key: "other"}), BEFORE) == []


def test_without_valgrind_only_ratios_count_and_that_is_said() -> None:
    assert worse(now(instructions=None), BEFORE) == []
    assert worse(now(instructions=None, ratios={"put": 2.5}), BEFORE) != []
    names = [what.name for what in COUNTED]
    found = unseen(now(instructions=None), BEFORE)
    assert found == [f"instructions of {name}: valgrind is not installed" for name in names]


def test_what_is_not_compared_is_said() -> None:
    assert unseen(now(), BEFORE) == []
    assert len(found := unseen(now(python="3.13"), BEFORE)) == len(COUNTED)
    assert "python is 3.13 here and 3.11 in the baseline" in found[0]


@pytest.mark.parametrize("key", ["ratios", "instructions"])
def test_a_figure_that_is_missing_now_fails(key: str) -> None:
    (found,) = worse(now(**{key: {}}), BEFORE)
    assert found.startswith("put: the baseline has this") and "not measured now" in found


@pytest.mark.parametrize("key", ["ratios", "instructions"])
def test_a_figure_that_the_baseline_lacks_fails(key: str) -> None:
    (found,) = worse(now(), {**BEFORE, key: {}})
    assert found.startswith("put: this") and "not in the baseline" in found


def test_a_disk_and_threads_may_be_twice_as_slow() -> None:
    for name in (DISK, DISPATCH):
        before = {**BEFORE, "ratios": {name: 1.0}}
        assert worse(now(ratios={name: 0.51}), before) == []
        assert worse(now(ratios={name: 0.49}), before) == [f"{name}: 0.49, was 1.00"]


def test_a_baseline_without_counts_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SystemExit):
        main(["--save"])


def test_the_documents_have_the_counts_of_the_baseline() -> None:
    baseline = json.loads(BASELINE.read_text())
    text = (BASELINE.parent.parent / "docs" / "performance.md").read_text()
    table = text.split("| | instructions |")[1].split("\n\n")[0]
    documented = [int(row.split("|")[2]) for row in table.splitlines()[2:]]
    assert documented == [baseline["instructions"][what.name] for what in COUNTED]


def test_the_baseline_has_every_figure() -> None:
    baseline = json.loads(BASELINE.read_text())
    assert set(baseline["instructions"]) == {what.name for what in COUNTED}
    assert set(baseline["ratios"]) == set(NAMES)
    assert all(ratio > 0 for ratio in baseline["ratios"].values())
    assert worse(baseline, baseline) == []


def test_every_row_of_a_peer_has_one_of_ours() -> None:
    """Same class and batch, or there is nothing to compare with; no more than one."""
    ours = [(c.durability, c.batch) for c in CASES if c.package == OURS]
    assert len(ours) == len(set(ours))
    for case in CASES:
        kind = "disk" if case.durability == "disk" else "os"
        assert (kind, case.batch) in ours, case.name
