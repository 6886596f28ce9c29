"""Faults in the delivery at a time of its own, which the tests of stops have to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

TIMERS = "rocketstore/services/delay/timers.py"
DELIVERY = "rocketstore/services/delay/timer_delivery.py"
PUT = "            self._put(stored, message, now_ms)\n        except"
FAULTS = (
    (
        Fault(
            "timer_checkpoint_ahead",
            DELIVERY,
            (
                (
                    PUT,
                    "            timers.table.pop()\n"
                    "            stored.save(timers)\n"
                    "            timers.table.add(entry)\n"
                    "            self._put(stored, message, now_ms)\n        except",
                ),
            ),
        ),
        "test_a_stop_at_each_step",
    ),
    (
        Fault(
            "copies_of_timers_are_not_looked_for",
            TIMERS,
            (("        self._look_for_copies(begin)\n", ""),),
        ),
        "test_a_stop_between_the_copies_and_the_table",
    ),
    (
        Fault(
            "timers_before_the_flush",
            "rocketstore/services/delay/offsets.py",
            (
                ("        engine.commit_log.log.request_flush(end)\n", ""),
                ("        engine.wait_flushed(end, None)\n", ""),
            ),
        ),
        "test_the_table_is_stored_after_a_flush",
    ),
    (
        Fault(
            "copies_of_timers_beyond_the_window",
            DELIVERY,
            (("            stored.keep_in_window(timers.table)\n", ""),),
        ),
        "test_copies_stay_within_the_window",
    ),
    (
        Fault(
            "the_table_of_another_log_is_believed",
            TIMERS,
            (
                (
                    "        if place is not None and stands(",
                    "        if False and stands(",
                ),
            ),
        ),
        "test_a_table_of_another_log",
    ),
    (
        Fault(
            "a_damaged_run_is_believed",
            "rocketstore/services/delay/timer_file.py",
            (("            run.check(next_offset)\n", "            pass\n"),),
        ),
        "test_files_that_are_missing_or_no_use",
    ),
    (
        Fault(
            "a_copy_ends_what_comes_again",
            TIMERS,
            (("        if EVERY not in message.properties:", "        if True:"),),
        ),
        "test_a_stop_between_a_copy_and_the_next_time",
    ),
    (
        Fault(
            "copies_are_put_again_with_the_next_time",
            DELIVERY,
            (("        if at not in timers.table.copied:", "        if True:"),),
        ),
        "test_no_room_for_the_next_time",
    ),
    (
        Fault(
            "the_next_time_before_the_copy",
            DELIVERY,
            (
                (
                    "        if at not in timers.table.copied:\n",
                    "        if again_ms is not None:\n"
                    "            put_again(self._engine, message, again_ms)\n"
                    "            again_ms = None\n"
                    "        if at not in timers.table.copied:\n",
                ),
            ),
        ),
        "test_a_stop_between_a_copy_and_the_next_time",
    ),
    (
        Fault(
            "cancels_are_forgotten_by_a_start",
            TIMERS,
            (("            if ended:\n", "            if False:\n"),),
        ),
        "test_a_stop_while_one_is_cancelled",
    ),
)


@pytest.mark.parametrize(("fault", "test"), FAULTS, ids=lambda it: getattr(it, "id", ""))
def test_planted_fault_is_caught(fault: Fault, test: str, tmp_path: Path) -> None:
    """The tests of stops fail with the fault."""
    plant(fault, tmp_path / "tree")
    where = ["tests/services/test_timer_stops.py", "tests/services/test_recurring.py"]
    caught(tmp_path / "tree", [*where, "-k", test, "--timeout=30"])
