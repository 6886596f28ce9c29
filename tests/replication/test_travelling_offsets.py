"""The offsets of a master's groups: when they are sent, and as they are on a copy, never ahead of its log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketstore import ReplicaStoreError, ReplicationError, Store
from rocketstore.replication import promote
from rocketstore.replication.master import sent_offsets
from rocketstore.replication.master.sent_offsets import OFFSETS_EVERY_S, SentOffsets
from rocketstore.replication.protocol.link import Offsets
from rocketstore.replication.replica import received_offsets
from rocketstore.replication.replica.received_offsets import ReceivedOffsets
from rocketstore.values.bounded_json import Limits
from tests.replication.copies import (
    SOON,
    address_of,
    caught_up,
    copy_of,
    open_copy,
    open_master,
    put_some,
    service_of,
)
from tests.replication.cutting_proxy import CuttingProxy
from tests.support.small_store import engine_of, open_small
from tests.support.waiting import wait_until


def table_of(store: Store) -> dict[str, object]:
    return dict(engine_of(store).offsets.table)


def commit(store: Store, group: str, offset: int, queue_id: int = 0) -> None:
    with store.consumer("orders", group=group, queue_id=queue_id) as consumer:
        consumer.commit({queue_id: offset})


def remove(store: Store, key: str) -> None:
    """As a tool that deletes a group does."""
    engine_of(store).offsets.take_from_master({key: {}}, whole=False)


def same_groups(copy: Store, master: Store) -> None:
    wait_until(lambda: table_of(copy) == table_of(master), lambda: str(table_of(copy)))


def test_a_copy_that_connects_gets_all_groups(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master:
        put_some(master)
        for number in range(50):
            commit(master, f"group{number}", number % 20)
        with open_copy(tmp_path / "c", master) as copy:
            same_groups(copy, master)
    with open_small(tmp_path / "c", mode="r") as reader:
        assert len(reader.groups("orders")) == 50


def test_commits_resets_and_removed_groups_travel(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        put_some(master)
        commit(master, "a", 7)
        commit(master, "b", 5, queue_id=1)
        same_groups(copy, master)
        commit(master, "a", 2)
        same_groups(copy, master)
        assert table_of(copy)["orders@a"] == {"0": 2}
        remove(master, "orders@a")
        same_groups(copy, master)
        assert copy.groups("orders") == ["b"]


def test_groups_of_the_copy_alone_stay(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master:
        put_some(master)
        commit(master, "a", 7)
        for _ in range(2):
            with open_copy(tmp_path / "c", master) as copy:
                wait_until(lambda copy=copy: "orders@a" in table_of(copy))
                commit(copy, "mine", 3)
                with pytest.raises(ReplicaStoreError, match="'a' of topic 'orders'"):
                    commit(copy, "a", 9)
                # The group may be read from where it is.
                with copy.consumer("orders", group="a", queue_id=0) as consumer:
                    assert consumer.positions == {0: 7}
        assert table_of(master) == {"orders@a": {"0": 7}}


def test_a_promoted_copy_goes_on_where_groups_were(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        put_some(master)
        caught_up(copy, master)
        commit(master, "a", 7)
        same_groups(copy, master)
        commit(copy, "mine", 3)
    promote(tmp_path / "c")
    with open_small(tmp_path / "c") as store:
        for group, offset in (("a", 7), ("mine", 3)):
            with store.consumer("orders", group=group, queue_id=0) as consumer:
                assert consumer.positions == {0: offset}
                consumer.seek(offset + 1, queue_id=0)
                consumer.commit()


def test_an_offset_of_no_queue_passes_over_no_message(tmp_path: Path) -> None:
    """Not of those that a promoted copy puts first in a queue that it had not."""
    far = {"later@a": {0: 1 << 62}}
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        engine_of(master).offsets.take_from_master(far, whole=True)
        same_groups(copy, master)
    promote(tmp_path / "c")
    with open_small(tmp_path / "c") as store:
        store.writer("later", queue_id=0).put(b"first")
    with (
        open_small(tmp_path / "c") as store,
        store.consumer("later", group="a", queue_id=0) as consumer,
    ):
        assert [one.body for one in consumer.poll(9)] == [b"first"]


def test_the_groups_of_a_master_that_follows_are_those_of_the_new_one(tmp_path: Path) -> None:
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        put_some(master)
        caught_up(copy, master)
        commit(master, "a", 7)
        same_groups(copy, master)
        copy.close()
        commit(master, "only_there", 1)  # does not travel any more
    promote(tmp_path / "c")
    with open_master(tmp_path / "c") as master:
        commit(master, "a", 9)
        with open_copy(tmp_path / "m", master) as copy:
            same_groups(copy, master)
    assert "orders@only_there" not in table_of_closed(tmp_path / "m")


def table_of_closed(path: Path) -> dict[str, object]:
    with open_small(path, mode="r") as store:
        return dict(engine_of(store).offsets.table)


def test_offsets_come_through_cut_connections(tmp_path: Path, rng: Any) -> None:
    with (
        open_master(tmp_path / "m", heartbeat_every=SOON) as master,
        CuttingProxy(address_of(master), rng, 6, 3000) as proxy,
        open_copy(tmp_path / "c", proxy.address) as copy,
    ):
        for round in range(8):
            put_some(master, 5)
            for number in range(20):
                commit(master, f"group{number}", round)
        wait_until(lambda: proxy.cut == 6)
        same_groups(copy, master)


def test_a_table_of_many_frames_arrives(tmp_path: Path) -> None:
    groups = {f"topic{n}@group{n}": dict.fromkeys(range(8), n) for n in range(3000)}
    groups["wide@group"] = {q: q for q in range(20_000)}  # larger than a frame
    with open_master(tmp_path / "m") as master:
        engine_of(master).offsets.take_from_master(groups, whole=True)
        with open_copy(tmp_path / "c", master) as copy:
            same_groups(copy, master)
            assert copy_of(copy).error is None
            assert service_of(master).error is None


def _offsets(end: int, whole: bool = False, **groups: int) -> Offsets:
    return Offsets(end, whole, {f"t@{name}": {0: at} for name, at in groups.items()})


def test_offsets_wait_for_the_log_that_they_speak_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketstore.replication.replica.received_offsets.AGAIN_S", 0.01)
    stored: list[dict[str, Any]] = []
    failures = [OSError("full")]

    def take_from_master(groups: Any, *, whole: bool) -> None:
        if failures:
            raise failures.pop()
        stored.append({"whole": whole, **groups})

    engine: Any = SimpleNamespace(
        positions=SimpleNamespace(flushed=0),
        offsets=SimpleNamespace(take_from_master=take_from_master),
    )
    noted: list[Exception] = []

    async def scene() -> None:
        kept = ReceivedOffsets(engine, noted.append, lambda: None)
        task = asyncio.create_task(kept.keep())
        kept.take(_offsets(100, whole=True, a=1))
        kept.take(_offsets(200, a=2))
        kept.take(_offsets(300, b=3))
        await asyncio.sleep(0.05)
        assert stored == noted == []
        engine.positions.flushed = 299
        kept.moved.set()
        async with asyncio.timeout(10):
            while not stored:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert stored == [{"whole": True, "t@a": {0: 1}}]
        assert len(noted) == 1
        engine.positions.flushed = 300
        kept.moved.set()
        async with asyncio.timeout(10):
            while len(stored) < 2:
                await asyncio.sleep(0.01)
        assert stored[1] == {"whole": False, "t@a": {0: 2}, "t@b": {0: 3}}
        task.cancel()

    asyncio.run(scene())


def test_no_more_offsets_wait_than_a_store_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master whose log never comes, and which goes on to name other groups, or has too many."""
    monkeypatch.setattr(received_offsets, "TABLE", Limits(1 << 40, 400))
    engine: Any = SimpleNamespace(positions=SimpleNamespace(flushed=0))
    noted: list[Exception] = []
    kept = ReceivedOffsets(engine, noted.append, lambda: None)
    kept.take(_offsets(100, whole=True, a=1))
    for n in range(1000):  # the same ones again and again
        kept.take(_offsets(200 + n, b=n, c=n))
    with pytest.raises(ReplicationError, match="too many offsets of the master wait"):
        for n in range(51):
            kept.take(_offsets(2000, **{f"g{n}": n}))
    kept.take(Offsets(3000, True, None))
    assert "remove groups there" in str(noted)


def test_a_write_that_is_under_way_ends_with_its_connection() -> None:
    """An older table would come after a newer one of the next connection."""
    under_way, goes_on = threading.Event(), threading.Event()
    stored: list[Any] = []

    def take_from_master(groups: Any, *, whole: bool) -> None:
        under_way.set()
        assert goes_on.wait(60)
        stored.append(groups)

    engine: Any = SimpleNamespace(
        positions=SimpleNamespace(flushed=100),
        offsets=SimpleNamespace(take_from_master=take_from_master),
    )

    async def scene() -> None:
        kept = ReceivedOffsets(engine, stored.append, lambda: None)
        task = asyncio.create_task(kept.keep())
        kept.take(_offsets(100, a=1))
        await asyncio.to_thread(under_way.wait)
        task.cancel()
        asyncio.get_running_loop().call_later(0.02, goes_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stored == [{"t@a": {0: 1}}]

    try:
        asyncio.run(scene())
    finally:
        goes_on.set()


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
