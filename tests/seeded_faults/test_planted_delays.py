"""Faults in the delivery of delayed messages, which the tests of stops have to catch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

DELIVERY = "rocketstore/services/delay/delivery.py"
COPY = "            try:\n                self._put_copy(message)\n            except"
FAULTS = (
    (
        Fault(
            "level_offset_before_copy",
            DELIVERY,
            (
                (
                    COPY,
                    "            level.next += 1\n"
                    "            self._offsets.save(self.levels)\n"
                    "            level.next -= 1\n" + COPY,
                ),
            ),
        ),
        "test_a_stop_before_the_copy",
    ),
    (
        Fault(
            "copies_are_not_looked_for",
            DELIVERY,
            (("        if skip_delivered(", "        if False and skip_delivered("),),
        ),
        "test_a_stop_between_the_copies_and_the_offsets",
    ),
    (
        Fault(
            "copies_do_not_name_their_source",
            "rocketstore/services/delay/copies.py",
            (("    properties[SOURCE] = f", "    _ = f"),),
        ),
        "test_a_stop_between_the_copies_and_the_offsets",
    ),
    (
        Fault(
            "offsets_before_the_flush",
            "rocketstore/services/delay/offsets.py",
            (
                ("        engine.commit_log.log.request_flush(end)\n", ""),
                ("        engine.wait_flushed(end, None)\n", ""),
            ),
        ),
        "test_the_offsets_are_stored_after_a_flush",
    ),
    (
        Fault(
            "copies_beyond_the_window",
            DELIVERY,
            (("        self._offsets.keep_in_window(self.levels)\n", ""),),
        ),
        "test_copies_stay_within_the_window",
    ),
    (
        Fault(
            "what_lies_between_copies_counts_as_delivered",
            "rocketstore/services/delay/copies.py",
            (("                left.update(dict.fromkeys(passed))\n", ""),),
        ),
        "test_a_message_that_a_crash_left_between_copies",
    ),
)


@pytest.mark.parametrize(("fault", "test"), FAULTS, ids=lambda it: getattr(it, "id", ""))
def test_planted_fault_is_caught(fault: Fault, test: str, tmp_path: Path) -> None:
    """The tests of stops fail with the fault."""
    plant(fault, tmp_path / "tree")
    caught(tmp_path / "tree", ["tests/services/test_delay_stops.py", "-k", test, "--timeout=20"])
