"""A reader that has put something itself sees it, or says that it cannot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

import rocketstore
from rocketstore.engine.engine import FollowingEngine
from rocketstore.errors import StoreBehindError
from rocketstore.log.follow import follower as module
from rocketstore.log.follow.follower import Follower
from tests.process.other_process import HOLD, PUT, TOPIC, other_process
from tests.support.small_store import engine_of


def follower_of(store: rocketstore.Store) -> Follower:
    return cast("FollowingEngine", engine_of(store))._follower


def test_a_death_before_the_dispatch_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer has acknowledged more than its queues have, and is killed; nobody recovers the store."""
    monkeypatch.setattr(module, "NEXT_WRITER_S", 0.1)
    root = tmp_path / "s"
    with other_process(HOLD, root) as writer:
        assert writer.line() == "open"
        with rocketstore.open(root, "r") as reader:
            assert reader.topics() == []
            follower_of(reader).own_end = lambda: 1 << 40
            writer.kill()
            for call in (reader.topics, lambda: reader.queues("orders")):
                with pytest.raises(StoreBehindError, match="has died"):
                    call()


def test_the_next_writer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEXT_WRITER_S", 60.0)
    root = tmp_path / "s"
    with other_process(HOLD, root) as writer, ThreadPoolExecutor(1) as pool:
        assert writer.line() == "open"
        with rocketstore.open(root, "r") as reader:
            assert reader.topics() == []
            follower_of(reader).own_end = lambda: 1
            writer.kill()
            asked = pool.submit(reader.topics)
            with other_process(PUT, root, given=[0, 1]) as following:
                assert following.line() == "open"
                following.hears()
                assert following.line() == "done"
                assert asked.result(60) == [TOPIC]


def test_a_writer_that_stopped_in_order_has_brought_all_there(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with other_process(HOLD, root) as writer:
        assert writer.line() == "open"
        with rocketstore.open(root, "r") as reader:
            assert reader.topics() == []
            writer.hears()
            assert writer.line() == "closed"
            follower_of(reader).own_end = lambda: 1 << 40
            assert reader.topics() == []
