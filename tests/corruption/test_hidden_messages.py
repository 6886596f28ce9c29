"""Pieces of queues and index get lost at random, and no message may be hidden."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.corruption.hidden_messages import Campaign
from tests.support import campaign


@pytest.mark.proof
def test_what_the_log_holds_is_served_or_named(tmp_path: Path, random_seed: int) -> None:
    """`python -m tests.corruption.hidden_messages --stores 10000` judges more of them."""
    hidden = Campaign(tmp_path, random_seed)
    running = campaign.begin(
        "hidden messages", asked=os.environ.get("ROCKETSTORE_HIDDEN", ""), alone=15, least=15
    )
    for number in running.rounds():
        hidden.one(number)
        assert not hidden.faults
