"""Checks of hostile stores that are left out, which the tests of attacks have to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

RECOVERY = "rocketstore/log/recovery"
FAULTS = (
    (
        Fault(
            "believe_any_cut",
            f"{RECOVERY}/recovery.py",
            (("if not LogWalk(self.log.files, rules).is_whole(own.cut):", "if True:"),),
        ),
        "tests/api/opens/test_false_checkpoints.py",
    ),
    (
        Fault(
            "believe_a_minimum_above_the_end",
            "rocketstore/log/commitlog/checkpoint.py",
            (("if own.minimum > own.flushed:", "if False:"),),
        ),
        "tests/api/opens/test_false_checkpoints.py",
    ),
    (
        Fault(
            "follow_links_of_queues",
            "rocketstore/log/layout/ownership.py",
            (("in _linked_queues(os.fspath(layout.consume_queue)):", "in []:"),),
        ),
        "tests/log/layout/test_links.py",
    ),
)


@pytest.mark.parametrize(("fault", "test"), FAULTS, ids=[fault.id for fault, _ in FAULTS])
def test_planted_fault_is_caught(fault: Fault, test: str, tmp_path: Path) -> None:
    """D-09 D-22: the tests fail with the fault."""
    plant(fault, tmp_path / "tree")
    caught(tmp_path / "tree", [test])
