"""A writer that lives in this process, and what follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore.log.follow.follower import Follower
from tests.support.live_writer import LiveWriter


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveWriter]:
    writer = LiveWriter(tmp_path / "store")
    yield writer
    writer.close()


@pytest.fixture
def source(live: LiveWriter) -> Iterator[Follower]:
    follower = Follower(live.layout, verify=3)
    yield follower
    follower.close()
