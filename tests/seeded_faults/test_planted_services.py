"""Faults of services that put in the wrong order or do not look, which their tests have to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

TRANSACTIONS = "rocketstore/services/transactions"
#: A transaction of several messages, of which a log that ends anywhere has all or nothing.
TOGETHER = "tests/services/test_store_transaction_crashes.py"
FAULTS = (
    (
        Fault(
            "copies_before_the_commit_record",
            f"{TRANSACTIONS}/commits.py",
            (
                (
                    """        put = append_batch(rows)
""",
                    """        behind = rows.chosen([*range(1, len(rows))])
        if len(behind):
            behind.put("memory", None)
        put = rows.chosen([0]).put("memory", None)
""",
                ),
            ),
        ),
        TOGETHER,
    ),
    (
        Fault(
            "copies_are_put_without_a_look",
            f"{TRANSACTIONS}/commits.py",
            ((" if name_in(row) not in there", ""),),
        ),
        TOGETHER,
    ),
    (
        Fault(
            "older_offsets_replace_newer_ones",
            "rocketstore/consuming/consumer_offsets.py",
            (("if self._rows.offsets(key, table).get(queue_id) == was:", "if True:"),),
        ),
        TOGETHER,
    ),
    (
        Fault(
            "progress_before_the_flush",
            f"{TRANSACTIONS}/commits.py",
            (("if one.end_offset <= flushed]", "if one.end_offset]"),),
        ),
        TOGETHER,
    ),
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
            f"{TRANSACTIONS}/reading.py",
            (("        if ours and", "        if False and"),),
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
    (
        Fault(
            "a_half_message_that_cannot_be_read_is_forgotten",
            f"{TRANSACTIONS}/open_table.py",
            (
                (
                    "                    self._register(queue, _entry_of_unreadable(",
                    "                    (queue, _entry_of_unreadable(",
                ),
            ),
        ),
        "tests/services/test_transaction_damage.py",
    ),
)


@pytest.mark.parametrize(("fault", "test"), FAULTS, ids=[fault.id for fault, _ in FAULTS])
def test_planted_fault_is_caught(fault: Fault, test: str, tmp_path: Path) -> None:
    """The tests fail with the fault."""
    plant(fault, tmp_path / "tree")
    caught(tmp_path / "tree", [test])
