"""Nothing that two machines had is lost, whichever process is killed or paused, whatever is cut."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.replication.history import History
from tests.support import campaign

#: Seconds of one history; a named run has longer ones.
SECONDS = float(os.environ.get("ROCKETSTORE_HISTORY_SECONDS", "30"))
#: Histories of a named run.
ASKED = os.environ.get("ROCKETSTORE_HISTORIES", "")


@pytest.mark.proof
def test_no_acknowledged_message_is_lost(tmp_path: Path, rng: random.Random) -> None:
    for number in campaign.begin("histories of faults", asked=ASKED, alone=1).rounds():
        (tmp_path / str(number)).mkdir()
        history = History(tmp_path / str(number), rng)
        history.run(SECONDS)
        print(history)
        assert history.wrong() == []
        assert history.acked


@pytest.mark.proof
def test_the_judge_finds_what_one_machine_alone_had(tmp_path: Path, rng: random.Random) -> None:
    """Planted: puts that wait for one disk are lost with it."""
    for number in range(10):
        history = History(tmp_path / str(number), rng, promise="disk")
        (tmp_path / str(number)).mkdir()
        history.run(6)
        if any("acknowledged and lost" in one for one in history.wrong()):
            return
    pytest.fail("ten histories lost nothing of what one machine alone had")
