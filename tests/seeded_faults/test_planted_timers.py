"""Faults in the delivery at a time of its own, which the tests of stops have to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

TIMERS = "rocketstore/services/delay/timers.py"
DELIVERY = "rocketstore/services/delay/timer_delivery.py"
ROLLING = "rocketstore/services/delay/rolling.py"
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
                    "            stored.save(timers.table)\n"
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
    (
        Fault(
            "what_was_put_again_waits_twice",
            "rocketstore/services/delay/timer_topic.py",
            (("    return removed or _properties", "    return _properties"),),
        ),
        "test_a_file_of_timers_that_names_what_was_put_again",
    ),
    (
        Fault(
            "what_is_put_again_ends_nothing",
            "rocketstore/services/delay/timer_topic.py",
            (('{"TIMER_ROLL_TIMES": times, ENDS: f"{message.queue_offset}"}', "{}"),),
        ),
        "test_a_file_of_timers_that_names_what_was_put_again",
    ),
    (
        Fault(
            "what_has_its_copy_is_put_again",
            ROLLING,
            (("None if number in table.copied else queue", "queue"),),
        ),
        "test_one_that_cannot_be_delivered_and_one_that_is_between",
    ),
    (
        Fault(
            "timers_alone_are_written_again_and_again",
            ROLLING,
            (("SHARE: Final = 2", "SHARE: Final = 0"),),
        ),
        "test_a_store_of_timers_alone",
    ),
    (
        Fault(
            "timers_go_with_what_they_hold",
            "rocketstore/services/retention/keeper.py",
            (
                (
                    "            facts = self._facts(rule, own=own)\n        return",
                    "            facts = replace(facts, holds=())\n        return",
                ),
                ("                    raise\n", "                    pass\n"),
            ),
        ),
        "test_a_disk_that_is_full",
    ),
)


@pytest.mark.parametrize(("fault", "test"), FAULTS, ids=lambda it: getattr(it, "id", ""))
def test_planted_fault_is_caught(fault: Fault, test: str, tmp_path: Path) -> None:
    """The tests of stops fail with the fault."""
    plant(fault, tmp_path / "tree")
    names = ("timer_stops", "timer_rolls", "recurring")
    where = [f"tests/services/test_{name}.py" for name in names]
    caught(tmp_path / "tree", [*where, "-k", test, "--timeout=30"])
