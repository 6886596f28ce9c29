"""Faults of the comparison of queues with the log: the tests of hidden messages fail with each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

LOOK = "rocketstore/log/dispatch/missing_units.py"
FAULTS = (
    Fault(
        "take_any_unit_for_that_of_the_record",
        LOOK,
        (
            (
                "            if there is not None and there[:2] == (physical_offset, size):\n",
                "            if there is not None:\n",
            ),
        ),
    ),
    Fault(
        "look_at_no_file_but_the_first",
        LOOK,
        (
            (
                "    lows = [max(begin, file.start_offset)",
                "    files = files[:1]\n    lows = [max(begin, file.start_offset)",
            ),
        ),
    ),
    Fault(
        "believe_a_size_without_times",
        "rocketstore/log/queues/files_stamp.py",
        (("{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}", "{found.st_size}"),),
    ),
    Fault(
        "keep_units_of_other_queues",
        "rocketstore/log/dispatch/wrong_units.py",
        (("            if _is_suspect(log, queue, begin):\n", "            if False:\n"),),
    ),
    Fault(
        "refill_no_queue_that_is_gone",
        "rocketstore/log/dispatch/refill.py",
        (
            (
                "        if (os.fsdecode(raw), queue_id) in self._wanted:\n            super().new",
                "        if self._queues.get(os.fsdecode(raw), queue_id):\n            super().new",
            ),
        ),
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_planted_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    plant(fault, tmp_path / "tree")
    caught(tmp_path / "tree", ["tests/api/tools/test_hidden_messages.py", "-x"])
