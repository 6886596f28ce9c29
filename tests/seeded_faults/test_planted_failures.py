"""Faults in how the store takes errors, which the sweep over failing calls has to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

SYNC = "                segment.sync(low - start, high - start)\n"
FAULTS = (
    Fault(
        "ignore_a_failed_sync",
        "rocketstore/log/commitlog/flusher.py",
        (
            (
                SYNC,
                "                try:\n"
                "                    segment.sync(low - start, high - start)\n"
                "                except OSError:\n"
                "                    pass\n",
            ),
        ),
    ),
    Fault(
        "sync_once_more_after_an_error",
        "rocketstore/log/commitlog/flusher.py",
        (
            (
                SYNC,
                "                try:\n"
                "                    segment.sync(low - start, high - start)\n"
                "                except OSError:\n"
                "                    segment.sync(low - start, high - start)\n",
            ),
        ),
    ),
    Fault(
        "keep_the_lock_when_a_close_fails",
        "rocketstore/engine/writing_engine.py",
        (
            (
                "if not mode.keep_lock:",
                "if not mode.keep_lock and steps.error is None:",
            ),
        ),
    ),
    Fault(
        "leave_a_gap_after_a_failed_roll",
        "rocketstore/log/commitlog/commit_log.py",
        (
            (
                "        if segment in (None, self.log.segment_file, self.log.next_file):\n",
                "        if True:\n",
            ),
        ),
    ),
    Fault(
        "tell_an_error_without_a_type",
        "rocketstore/log/mapped_files/second_names.py",
        (
            (
                "raise\n            self._possible",
                'raise RuntimeError("no link") from error\n            self._possible',
            ),
        ),
    ),
)
#: What leads to the fault, so that no more is tried than has to be.
SITES = {
    "ignore_a_failed_sync": "flusher",
    "sync_once_more_after_an_error": "flusher",
    "keep_the_lock_when_a_close_fails": "remove_abort",
    "leave_a_gap_after_a_failed_roll": "second_names",
    "tell_an_error_without_a_type": "second_names",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_planted_fault_is_caught(fault: Fault, tmp_path: Path) -> None:
    """D-13 D-36: the sweep fails with the fault."""
    plant(fault, tmp_path / "tree")
    caught(
        tmp_path / "tree",
        ["tests/syscall_faults/test_every_call.py", "-k", "once"],
        ROCKETSTORE_FAULT_SITES=SITES[fault.id],
    )
