"""The guard of the speed: what bench/check.py calls worse, and the baseline that it reads."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from bench.check import BASELINE, worse
from bench.counted import COUNTED
from bench.peer_cases import CASES, OURS

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


def test_without_valgrind_only_ratios_count() -> None:
    assert worse(now(instructions={}), BEFORE) == []


def test_the_baseline_has_every_figure() -> None:
    baseline = json.loads(BASELINE.read_text())
    assert set(baseline["instructions"]) == {what.name for what in COUNTED}
    assert all(ratio > 0 for ratio in baseline["ratios"].values())
    assert worse(baseline, baseline) == []


def test_every_row_of_a_peer_has_one_of_ours() -> None:
    """Same class and batch, or there is nothing to compare with; no more than one."""
    ours = [(c.durability, c.batch) for c in CASES if c.package == OURS]
    assert len(ours) == len(set(ours))
    for case in CASES:
        kind = "disk" if case.durability == "disk" else "os"
        assert (kind, case.batch) in ours, case.name
