"""A few thousand frames of hostile peers, at a master and at a copy; `hostile_frames` throws more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replication.peers.hostile_frames import SEGMENT, attack
from tests.replication.peers.hostile_talk import Plan

FRAMES = 2000


@pytest.mark.parametrize(
    ("role", "protocol"), [("master", "rocketstore"), ("replica", "rocketstore")]
)
def test_hostile_frames_harm_nothing(
    tmp_path: Path, role: str, protocol: str, random_seed: int
) -> None:
    """The clock is not judged: the machine may stand still."""
    told = attack(tmp_path, Plan(role, protocol, random_seed, SEGMENT), FRAMES, 0.1)
    assert told.faults == [], told.shown()
    assert told.taken >= FRAMES
