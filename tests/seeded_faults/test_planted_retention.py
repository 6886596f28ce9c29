"""Faults in what retention may remove, which its tests have to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

KEEPER = "rocketstore/services/retention/keeper.py"
PLAN = "rocketstore/services/retention/plan.py"
TESTS = "tests/services/test_retention.py"

LATEST = "rocketstore/services/retention/latest.py"
LATEST_TESTS = "tests/services/test_keep_latest.py"

FAULTS = (
    (
        Fault(
            "a_copy_of_what_is_no_longer_the_latest",
            LATEST,
            (("only_latest=True", "only_latest=False"),),
        ),
        LATEST_TESTS,
    ),
    (
        Fault(
            "what_was_put_before_the_watch_is_not_looked_at",
            LATEST,
            (
                (
                    "limit, start = max(visible, known), max(begin, self._seen)",
                    "limit, start = self._seen or visible, max(begin, self._seen)",
                ),
            ),
        ),
        LATEST_TESTS,
    ),
    (
        Fault("copies_without_a_bound", LATEST, (("if most < 0:", "if False:"),)),
        LATEST_TESTS,
    ),
    (
        Fault("tombstones_are_put_again", LATEST, (("marks & TOMBSTONE == 0", "marks >= 0"),)),
        LATEST_TESTS,
    ),
    (
        Fault(
            "a_trim_passes_named_holds",
            "rocketstore/engine/trim.py",
            (("else min(wanted, held_from)", "else wanted"),),
        ),
        "tests/services/test_holds.py",
    ),
    (
        Fault(
            "retention_plans_above_dispatched",
            KEEPER,
            (("min(positions.dispatched, positions.flushed)", "positions.flushed"),),
        ),
        TESTS,
    ),
    (
        Fault(
            "retention_removes_above_dispatched",
            "rocketstore/engine/trim.py",
            (
                (
                    "limit = min(wanted, self._positions.dispatched, self._segments.released)",
                    "limit = min(wanted, self._segments.released)",
                ),
            ),
        ),
        TESTS,
    ),
    (
        Fault(
            "retention_forgets_holds",
            PLAN,
            (("_last_end(sealed, min(goal, held)", "_last_end(sealed, max(goal, 0)"),),
        ),
        "tests/services/test_retention_plan.py",
    ),
    (
        Fault(
            "a_hold_in_the_wrong_place",
            "rocketstore/services/retention/holds.py",
            (("read_unit(file, found)", "read_unit(file, unit_number + found)"),),
        ),
        TESTS,
    ),
    (
        Fault(
            "a_queue_that_was_not_begun_counts_as_consumed",
            "rocketstore/services/retention/holds.py",
            (("stored.get(queue_id, 0)", "stored.get(queue_id, end)"),),
        ),
        TESTS,
    ),
    (
        Fault(
            "a_jump_of_the_clock_believed",
            KEEPER,
            (("if ahead <= self._trusted + STEP_MS:", "if True:"),),
        ),
        TESTS,
    ),
    (
        Fault(
            "an_emergency_without_an_event",
            KEEPER,
            (("        if plan.emergency:\n", "        if False:\n"),),
        ),
        "tests/services/test_retention_disk.py",
    ),
)


@pytest.mark.parametrize(("fault", "tests"), FAULTS, ids=[fault.id for fault, _ in FAULTS])
def test_planted_fault_fails_a_test(fault: Fault, tests: str, tmp_path: Path) -> None:
    plant(fault, tmp_path / "tree")
    caught(tmp_path / "tree", [tests])
