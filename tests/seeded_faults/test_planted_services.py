"""Faults of services that put in the wrong order or do not look, which their tests have to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

TRANSACTIONS = "rocketstore/services/transactions"
FAULTS = (
    (
        Fault(
            "op_record_before_copy",
            f"{TRANSACTIONS}/settling.py",
            (
                (
                    "                self._put_copy(entry, want)\n"
                    "            self._put_op(entry, want, durability)\n",
                    "                self._put_op(entry, want, durability)\n"
                    "                self._put_copy(entry, want)\n"
                    "            else:\n"
                    "                self._put_op(entry, want, durability)\n",
                ),
            ),
        ),
        "tests/services/test_transactions.py",
    ),
    (
        Fault(
            "no_look_for_the_copy",
            f"{TRANSACTIONS}/copies.py",
            (("            if ours and", "            if False and"),),
        ),
        "tests/services/test_transactions.py",
    ),
    (
        Fault(
            "progress_of_ops_at_the_end",
            f"{TRANSACTIONS}/open_table.py",
            (("self.ops[0][0] if self.ops else self.op_seen", "self.op_seen"),),
        ),
        "tests/services/test_transactions.py",
    ),
)


@pytest.mark.parametrize(("fault", "test"), FAULTS, ids=[fault.id for fault, _ in FAULTS])
def test_planted_fault_is_caught(fault: Fault, test: str, tmp_path: Path) -> None:
    """The tests fail with the fault."""
    plant(fault, tmp_path / "tree")
    caught(tmp_path / "tree", [test])
