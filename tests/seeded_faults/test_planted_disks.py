"""Faults that only real file systems show, planted one at a time: the proofs of tests/filesystems must catch them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = [pytest.mark.proof, pytest.mark.root]


class Planted(NamedTuple):
    fault: Fault
    tests: list[str]


FLUSHER = "rocketstore/log/commitlog/flusher.py"
SYNC = "                segment.sync(low - start, high - start)\n"
RETRY = """                try:
                    segment.sync(low - start, high - start)
                except OSError:
                    segment.sync(low - start, high - start)
"""
PLANTED = (
    Planted(
        Fault(
            "no_sync_at_all",
            "rocketstore/_native/os/durable_write.pyx",
            (
                ("zero_count, offset, RWF_DSYNC)", "zero_count, offset, 0)"),
                ("    return sync_c(fd) if result == 0 else result\n", "    return result\n"),
            ),
        ),
        ["tests/filesystems/test_power_cut.py"],
    ),
    Planted(
        Fault("retry_after_a_failed_sync", FLUSHER, ((SYNC, RETRY),)),
        ["tests/filesystems/test_failing_disk.py", "-k", "ext4"],
    ),
    Planted(
        Fault(
            "no_blocks_ahead",
            "rocketstore/log/mapped_files/segment_blocks.py",
            (("        if allocated(fd, begin, end):\n", "        if begin < end:\n"),),
        ),
        ["tests/filesystems/test_full_disk.py", "-k", "ext4"],
    ),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.fault.id)
def test_planted_fault_is_caught(planted: Planted, tmp_path: Path) -> None:
    """A proof of tests/filesystems fails with the fault, by itself."""
    plant(planted.fault, tmp_path / "tree")
    said = caught(tmp_path / "tree", planted.tests, ROCKETSTORE_POWER_CUTS="12")
    assert "AssertionError" in said or "assert" in said
    print("\n".join(line for line in said.splitlines() if line.startswith(("E  ", "| ")))[:1500])
