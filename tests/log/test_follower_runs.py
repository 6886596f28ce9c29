"""Following a store while other threads read: what they hold and see when a new run of the writer is met."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore.log import follower as follower_module
from rocketstore.log.followed_queue import FollowedQueue
from rocketstore.log.follower import Follower
from rocketstore.log.layout import StoreLayout
from rocketstore.log.log_directories import list_log
from rocketstore.log.reader import Reader
from tests.live_writer import LiveWriter
from tests.made_store import UNIT_SIZE


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


def test_readers_go_on_while_a_new_run_is_met(
    live: LiveWriter, source: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads: neither do they see a log without segments, nor are files closed that they hold."""
    live.fill(60)
    reader = Reader(source)
    assert reader.bounds("orders", 0) == (0, 60)
    queue = source.queue("orders", 0)
    assert isinstance(queue, FollowedQueue)
    held = queue.locate(3)
    assert held is not None
    seen = []

    def listed(layout: StoreLayout) -> list[tuple[int, int, str]]:
        seen.append(source.segments())
        return list_log(layout)

    monkeypatch.setattr(follower_module, "list_log", listed)
    live.die()
    live.start()
    assert reader.bounds("orders", 0) == (0, 60)
    assert seen
    assert all(seen)
    assert held[0].read(held[1], UNIT_SIZE)
