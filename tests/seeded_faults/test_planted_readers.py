"""Faults in how readers outlive writers, which their tests have to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

FAULTS = (
    (
        Fault(
            "look_while_a_process_rebuilds",
            "rocketstore/log/follow/writer_monitor.py",
            (
                (
                    "                    if self._watch.run() == run:\n"
                    "                        return found\n",
                    "                    return found\n",
                ),
            ),
        ),
        "tests/log/follow/test_steady.py",
    ),
    (
        Fault(
            "believe_the_page_of_a_killed_writer",
            "rocketstore/engine/engine.py",
            (("newer.lacks(self.positions.dispatched)", "newer.lacks(0)"),),
        ),
        "tests/log/follow/test_steady.py",
    ),
    (
        Fault(
            "go_on_in_another_log",
            "rocketstore/log/follow/log_view.py",
            (
                (
                    "        if tail_bytes(segments, self._end, TAIL_BYTES) != self._tail:\n",
                    "        if False:\n",
                ),
            ),
        ),
        "tests/log/follow/test_follower.py",
    ),
    (
        Fault(
            "stay_with_a_dead_writer",
            "rocketstore/engine/engine.py",
            (("lock == self._lock_seen and state", "state"),),
        ),
        "tests/api/reads/test_reader_succession.py"
        "::test_a_writer_that_came_and_went_between_two_looks",
    ),
    (
        Fault(
            "believe_a_checkpoint_of_another_history",
            "rocketstore/spark/source/history.py",
            (("    if found != last:\n", "    if False:\n"),),
        ),
        "tests/spark/source/test_history.py",
    ),
    (
        Fault(
            "believe_a_bookmark_of_another_history",
            "rocketstore/scanning/bookmark.py",
            (("    if found != last:\n", "    if False:\n"),),
        ),
        "tests/api/reads/test_bookmarks.py::test_an_older_copy",
    ),
    (
        Fault(
            "read_a_log_that_is_not_there",
            "rocketstore/engine/open.py",
            (("lacks = engine.recovery.missing and not request.options.force", "lacks = False"),),
        ),
        "tests/api/opens/test_missing_log.py::test_a_log_that_is_mounted_again",
    ),
    (
        Fault(
            "leave_out_other_rows_of_a_version",
            "rocketstore/spark/sink/commit.py",
            (
                (
                    "            check_reused(writer, version, noted, files, reuse)\n",
                    "            pass\n",
                ),
            ),
        ),
        "tests/spark/sink/test_versions.py::test_other_rows_are_an_error",
    ),
)


@pytest.mark.parametrize(("fault", "tests"), FAULTS, ids=[fault.id for fault, _ in FAULTS])
def test_planted_fault_is_caught(fault: Fault, tests: str, tmp_path: Path) -> None:
    """D-30: a test fails with the fault."""
    plant(fault, tmp_path / "tree")
    caught(tmp_path / "tree", [tests])
