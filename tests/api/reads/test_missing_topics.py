"""Names of topics that cannot be are refused by readers; those that are not there are told of."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import InvalidTopicError, QueueNotFoundError, Store
from rocketstore.log.read import named_topics
from tests.support.made_store import MadeStore
from tests.support.small_store import SMALL, engine_of, open_small

READS: dict[str, Callable[..., Any]] = {
    "consumer": lambda store, topic, **more: store.consumer(topic, **more).poll(),
    "query": lambda store, topic, **more: list(store.query(topic, "k", **more)),
    "one": lambda store, topic, **more: store.query(topic, "k", limit=1, **more),
    "scan": lambda store, topic, **more: list(rocketstore.scan(store, topics=topic, **more)),
    "scan of queues": lambda store, topic, **more: list(
        rocketstore.scan(store, queues={topic: [0]}, **more)
    ),
}
IMPOSSIBLE = ("t*", "orders.v1", "", "..", "a/b", "größe", "x" * 256, "\udc80")


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_topics, "_told", set())


@pytest.fixture(params=["rw", "r"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with open_small(tmp_path, durability="os") as store:
        writer = store.writer("orders", queues=2)
        for body in (b"1", b"2"):
            writer.put(body, keys="k")
    with open_small(tmp_path, request.param) as store:
        yield store


def test_a_name_that_cannot_be_is_refused(store: Store) -> None:
    for topic, read in itertools.product(IMPOSSIBLE, READS.values()):
        with pytest.raises(InvalidTopicError, match=r"topic = .*; the store holds no such topic"):
            read(store, topic)


def test_other_calls_refuse_it_too(store: Store, tmp_path: Path) -> None:
    for call in (store.min_queue_offset, store.max_queue_offset):
        with pytest.raises(InvalidTopicError):
            call("t*", 0)
        assert call("ordres", 0) == 0
    with pytest.raises(InvalidTopicError):
        store.offset_at("t*", 0, 0)
    with pytest.raises(InvalidTopicError):
        rocketstore.scan(tmp_path, topics=["orders", "t*"])


def test_one_that_is_not_there_is_told_of_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for number, read in enumerate(READS.values()):
        for _ in range(3):
            assert read(store, f"ordres{number}") == []
        line = caplog.messages[number]
        assert line.startswith(f"{engine_of(store).path}: there is no topic 'ordres{number}': ")
        assert "must_exist=True" in line
    assert len(caplog.messages) == len(READS)


def test_must_exist_makes_it_an_error(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    for read in READS.values():
        with pytest.raises(QueueNotFoundError, match=r"no topic 'ordres'; near to it: 'orders'"):
            read(store, "ordres", must_exist=True)
        assert read(store, "orders", must_exist=True)
        with pytest.raises(ValueError, match=r"must_exist = 'yes': True"):
            read(store, "orders", must_exist="yes")
    assert not caplog.messages


def test_a_scan_need_not_look_at_names(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    for topic in ("t*", "ordres"):
        assert list(rocketstore.scan(store, topics=topic, must_exist=None)) == []
    assert not caplog.messages


def test_a_queue_must_exist_too(store: Store) -> None:
    assert store.consumer("orders", queue_id=0, must_exist=True).poll()
    with pytest.raises(QueueNotFoundError, match="'orders' has no queue 9; its queues: 0, 1"):
        store.consumer("orders", queue_id=9, must_exist=True)


def test_a_consumer_that_waits_for_its_topic_gets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(tmp_path) as store:
        consumer = store.consumer("late")
        assert not caplog.messages  # its writer may come before the first read
        assert consumer.poll() == []
        assert len(caplog.messages) == 1
        store.writer("late").put(b"x")
        assert [message.body for message in consumer] == [b"x"]
        assert consumer.poll() == []
        assert len(caplog.messages) == 1


def test_a_topic_without_messages_left_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"x")
        consumer = store.consumer("orders", offset="latest", must_exist=True)
        assert consumer.poll() == []
    assert not caplog.messages


def test_names_of_other_programs_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = MadeStore(tmp_path)
    for topic in ("a.b", "..", "größe"):
        made.put(topic, keys="k")
    made.dispatch()
    for mode in ("r", "rw"):
        with open_small(tmp_path, mode) as store:
            for topic in ("a.b", "größe"):
                assert len(store.consumer(topic, must_exist=True).poll()) == 1
                assert sum(c.rows for c in rocketstore.scan(store, topics=topic)) == 1
            # A record has this name, and no queue can have it.
            assert sum(c.rows for c in rocketstore.scan(store, topics="..")) == 1
            with pytest.raises(InvalidTopicError):
                store.consumer("..")


def test_the_same_in_an_event_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with rocketstore.aio.open(tmp_path, **SMALL) as store:
            await store.writer("orders").put(b"x", keys="k")
            for topic, error in (("t*", InvalidTopicError), ("ordres", QueueNotFoundError)):
                with pytest.raises(error):
                    await store.consumer(topic, must_exist=True).poll()
                with pytest.raises(error):
                    await store.query(topic, "k", must_exist=True)
            assert not caplog.messages
            assert await store.consumer("ordres").poll() == []
            assert await store.query("ordres", "k") == []
            assert len(caplog.messages) == 1

    asyncio.run(main())


def test_the_same_of_an_archive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyarrow", reason="ship needs pyarrow")
    with open_small(tmp_path / "store") as store:
        for _ in range(50):
            store.writer("orders", durability="os").put(b"x" * 1000)
        store.ship(uri := f"file://{tmp_path}/archive")
    with pytest.raises(InvalidTopicError):
        rocketstore.scan(uri, topics="t*")
    with pytest.raises(QueueNotFoundError):
        rocketstore.scan(uri, topics="ordres", must_exist=True)
    assert not caplog.messages
    assert list(rocketstore.scan(uri, topics="ordres")) == []
    assert "no topic 'ordres'" in caplog.text
    assert list(rocketstore.scan(uri, topics="orders", must_exist=True))
