"""Faults in replication that the histories have to catch: what each loses is seen by their judge alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.seeded_faults.planting import Fault, caught, plant

pytestmark = pytest.mark.proof

SESSION = "rocketstore/replication/protocol/session.py"
#: The fault, the faults of a history that bring it out, and what the judge says.
FAULTS = (
    (
        Fault(
            "what_was_sent_counts_as_synced",
            "rocketstore/replication/master/sender.py",
            (
                (
                    "self._acknowledged(self, event.synced)",
                    "self._acknowledged(self, self.position)",
                ),
            ),
        ),
        ("slow link,split brain,loss of the master", "acknowledged are lost"),
    ),
    (
        Fault(
            "what_is_cut_is_not_kept",
            "rocketstore/log/recovery/repair.py",
            (
                (
                    "        kept = keep_copy(",
                    '        kept = "" if "ordered" in reason else keep_copy(',
                ),
            ),
        ),
        ("split brain,loss of the master", "neither in the log nor in quarantine"),
    ),
    (
        Fault(
            "a_copy_that_has_more_is_not_cut",
            SESSION,
            (
                ("        if common < ask.end:", "        if False:"),
                ("        if digest is not None and digest != ask.digest:", "        if False:"),
                ("            if common != accept.start or", "            if False and"),
            ),
        ),
        ("split brain,loss of the master", "ends with another log than the last master"),
    ),
)


@pytest.mark.parametrize(("fault", "history"), FAULTS, ids=lambda it: getattr(it, "id", ""))
def test_planted_fault_is_caught(fault: Fault, history: tuple[str, str], tmp_path: Path) -> None:
    """A history fails with the fault."""
    kinds, said = history
    plant(fault, tmp_path / "tree")
    asked = {
        # The first four find it nearly always: more are for a machine that is busy with others.
        "ROCKETSTORE_HISTORIES": "24",
        "ROCKETSTORE_HISTORY_SECONDS": "12",
        "ROCKETSTORE_HISTORY_FAULTS": kinds,
    }
    tests = ["tests/replication/histories/test_histories.py", "-k", "lost"]
    assert said in caught(tmp_path / "tree", tests, **asked)
