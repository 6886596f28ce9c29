"""When a replica is sent offsets: all first, then what changed, never before the log of that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from rocketstore.replication.master import sent_offsets
from rocketstore.replication.master.sent_offsets import OFFSETS_EVERY_S, SentOffsets
from rocketstore.replication.protocol.link import Offsets


class Time:
    """A clock that stands."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(sent_offsets, "time", clock)
    return clock


class Scene:
    """A table and a log, and what one replica is sent of them."""

    def __init__(self) -> None:
        self.table: dict[str, object] = {"t@a": {"0": 1}}
        self.end = 100
        self.sent = SentOffsets(lambda: self.table, lambda: self.end)

    def commit(self, key: str, offset: int) -> None:
        self.table = {**self.table, key: {"0": offset}}

    def taken(self) -> Offsets:
        return asyncio.run(self.sent.take())


@pytest.fixture
def scene(clock: Time) -> Scene:
    return Scene()


def test_all_groups_come_first(scene: Scene) -> None:
    assert scene.sent.changed
    assert scene.sent.due(100)
    assert scene.taken() == Offsets(100, True, {"t@a": {0: 1}})
    assert not scene.sent.changed
    assert not scene.sent.due(100)


def test_a_table_waits_for_the_log_of_its_moment(scene: Scene) -> None:
    """Commits that come meanwhile are of the next one."""
    assert not scene.sent.due(99)
    scene.end = 200
    scene.commit("t@a", 2)
    assert not scene.sent.changed  # nothing wakes a replica that is sent the log
    assert scene.sent.due(100)
    assert scene.taken() == Offsets(100, True, {"t@a": {0: 1}})


def test_the_end_is_asked_after_the_table(clock: Time) -> None:
    """What is committed between the two is of messages below the end."""
    asked: list[str] = []

    def noted(name: str, gives: Any) -> Callable[[], Any]:
        return lambda: asked.append(name) or gives

    sent = SentOffsets(noted("table", {}), noted("end", 5))
    assert sent.due(5)
    assert asked[-2:] == ["table", "end"]


def test_what_changes_goes_out_together(scene: Scene, clock: Time) -> None:
    assert scene.sent.due(100)
    scene.taken()
    for offset in range(5):
        scene.commit("t@b", offset)
    assert scene.sent.changed
    assert not scene.sent.due(100)
    clock.now += OFFSETS_EVERY_S
    assert scene.sent.due(100)
    assert scene.taken() == Offsets(100, False, {"t@b": {0: 4}})


def test_nothing_is_sent_where_nothing_changed(scene: Scene, clock: Time) -> None:
    assert scene.sent.due(100)
    scene.taken()
    clock.now += 100
    assert not scene.sent.due(100)
