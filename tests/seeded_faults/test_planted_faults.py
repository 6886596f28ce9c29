"""Faults that the model tests have to catch, planted one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

FAULTS = (
    Fault(
        "forget_the_blank",
        "csrc/rs_log_file.c",
        (("rs_store32(blank + RS_AT_MAGIC, RS_MAGIC_BLANK);", "(void)blank;"),),
    ),
    Fault(
        "skip_one_dispatch",
        "rocketstore/_native/dispatch/dispatch_loop.pyx",
        (
            (
                "            reason = self.dispatch()\n",
                "            reason = self.dispatch() if self.records % 7 != 3 else REASON_DONE\n",
            ),
        ),
    ),
    Fault(
        "truncate_in_memory_only",
        "rocketstore/log/recovery/repair.py",
        (("                syscalls.pwrite(fd, bytes(count), position)\n", ""),),
    ),
    Fault(
        "off_by_one_roll",
        "csrc/rs_log_file.c",
        (
            (
                "bool roll = size + RS_BLANK_SIZE_MIN > left;",
                "bool roll = size + RS_BLANK_SIZE_MIN > left + 1;",
            ),
        ),
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_planted_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    """D-29: the state machine fails with the fault, by a failed step: nothing cut comes back, too."""
    plant(fault, tmp_path / "tree")
    caught(
        tmp_path / "tree",
        ["tests/model"],
        ROCKETSTORE_MACHINE_EXAMPLES="80",
        ROCKETSTORE_MACHINE_SHRINK="0",
    )
