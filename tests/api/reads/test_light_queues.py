"""INNER_MULTI_DISPATCH: one record, several queues."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from rocketstore import (
    ConfigError,
    CorruptRecordError,
    MessageRejectedError,
    PropertiesTooLargeError,
    PutResult,
    Store,
    tools,
)
from tests.support.made_store import MadeStore, write_at
from tests.support.small_store import dispatched, everything, open_small

LIGHT = {"multi_dispatch_enabled": True, "light_queue_enabled": True}


def put(store: Store, names: str, body: bytes = b"x", queue_id: int = 0) -> PutResult:
    return store.put_message(
        "orders", body, properties={"INNER_MULTI_DISPATCH": names}, queue_id=queue_id
    )


@pytest.mark.store(**LIGHT)
def test_one_record_in_every_listed_queue(store: Store) -> None:
    for n in range(25):
        put(store, "%LMQ%a,%LMQ%b" if n % 2 else "%LMQ%a", b"%d" % n, queue_id=3)
    dispatched(store)
    assert [m.body for m in everything(store, "%LMQ%a")] == [b"%d" % n for n in range(25)]
    assert [m.body for m in everything(store, "%LMQ%b")] == [b"%d" % n for n in range(1, 25, 2)]
    assert [m.body for m in everything(store)] == [b"%d" % n for n in range(25)]
    assert store.queues("%LMQ%a") == [0]
    assert store.queues("orders") == [3]
    assert store.stats().put_messages == 25


@pytest.mark.store(**LIGHT)
def test_the_record_names_its_offsets(store: Store) -> None:
    put(store, "%LMQ%a")
    result = put(store, "%LMQ%b,%LMQ%a")
    properties = store.get(result.physical_offset).properties
    assert properties["INNER_MULTI_QUEUE_OFFSET"] == "0,1"


def test_offsets_go_on_after_an_open(tmp_path: Path) -> None:
    for n in range(3):
        with open_small(tmp_path, **LIGHT) as store:
            put(store, "%LMQ%a", b"%d" % n)
    with open_small(tmp_path, "r") as store:
        assert [m.body for m in everything(store, "%LMQ%a")] == [b"0", b"1", b"2"]


def test_without_light_queues(tmp_path: Path) -> None:
    """The option off: an ordinary property; multi dispatch only: ordinary names only."""
    with open_small(tmp_path / "a") as store:
        put(store, "%LMQ%a")
        assert dispatched(store).topics() == ["orders"]
    with open_small(tmp_path / "b", multi_dispatch_enabled=True) as store:
        with pytest.raises(MessageRejectedError, match="light_queue_enabled"):
            put(store, "%LMQ%a")
        put(store, "other", queue_id=2)
        assert dispatched(store).queues("other") == [2]
    with pytest.raises(ConfigError, match="multi_dispatch_enabled"):
        open_small(tmp_path / "c", light_queue_enabled=True)


@pytest.mark.parametrize("names", ["../x", "a/b", ",", "%LMQ%a,", "%LMQ%" + "x" * 300])
@pytest.mark.store(**LIGHT)
def test_names_that_cannot_be_queues(names: str, store: Store) -> None:
    with pytest.raises(MessageRejectedError):
        put(store, names)
    assert store.end_offset == 0


@pytest.mark.store(commit_log_file_size_bytes=1 << 16, **LIGHT)
def test_too_many_names(store: Store) -> None:
    with pytest.raises(MessageRejectedError, match="257 queues"):
        put(store, ",".join(f"%LMQ%{n}" for n in range(257)))
    assert store.end_offset == 0


@pytest.mark.parametrize("first", [9, 10, 11, 20])
def test_made_again_where_the_log_was_trimmed(tmp_path: Path, first: int) -> None:
    """Queue files have ten units: the first message that is left stands at the begin of one, or not."""
    made = MadeStore(tmp_path)
    for n in range(first, first + 15):
        names = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(n)}
        made.put(body=b"%d" % n, properties=names)
    with open_small(tmp_path, **LIGHT) as store:
        found = [(m.body, m.queue_id) for m in everything(store, "%LMQ%a")]
        assert found == [(b"%d" % n, 0) for n in range(first, first + 15)]
        assert store.min_queue_offset("%LMQ%a", 0) == first


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_offsets_that_do_not_fit_are_refused_before_anything_is_stored(
    tmp_path: Path, durability: str
) -> None:
    """The offsets are added behind the check of what was given; a record of more is one that nobody reads."""
    names = ",".join(f"%LMQ%q{number}" for number in range(8))
    taken = len("INNER_MULTI_DISPATCH") + 1 + len(names) + 1 + len("A") + 1 + 1 + 20
    with open_small(
        tmp_path, durability=durability, commit_log_file_size_bytes=1 << 20, **LIGHT
    ) as store:
        for free in (10, 39):
            with pytest.raises(PropertiesTooLargeError, match="light queues"):
                store.put_message(
                    "orders",
                    b"x",
                    properties={"A": "v" * (32767 - taken - free), "INNER_MULTI_DISPATCH": names},
                )
        assert store.end_offset == 0
        store.put_message(
            "orders",
            b"x",
            properties={"A": "v" * (32767 - taken - 41), "INNER_MULTI_DISPATCH": names},
        )
        for number in range(5):
            store.put_message("orders", b"after %d" % number)
        assert len(everything(dispatched(store), "orders")) == 6
        assert store.max_queue_offset("%LMQ%q7", 0) == 1


@pytest.mark.store(max_light_queues=2, **LIGHT)
def test_a_put_that_fails_makes_no_queue(store: Store) -> None:
    """K-23: what it named is not there, and leaves room for others."""
    for number in range(5):
        with pytest.raises(MessageRejectedError):
            put(store, f"%LMQ%{number},%LMQ%more", bytes(100_000))
    put(store, "%LMQ%a")
    with pytest.raises(MessageRejectedError):
        put(store, "%LMQ%a,%LMQ%0", bytes(100_000))
    put(store, "%LMQ%b")
    for name in ("%LMQ%0", "%LMQ%c"):
        with pytest.raises(MessageRejectedError, match="there are 2 already"):
            put(store, name)
    put(store, "%LMQ%a,%LMQ%b")
    assert dispatched(store).max_queue_offset("%LMQ%b", 0) == 2
    assert sorted(store.topics()) == ["%LMQ%a", "%LMQ%b", "orders"]


@pytest.mark.parametrize("names", ["%LMQ%a,%LMQ%a", "invoices,%LMQ%a,invoices", "orders"])
@pytest.mark.store(**LIGHT)
def test_a_queue_is_listed_once(names: str, store: Store) -> None:
    """Else two of its offsets were of one message, whose place in the queue nobody could tell."""
    with pytest.raises(MessageRejectedError, match="names a queue twice, or orders/0"):
        put(store, names)
    assert store.end_offset == 0


@pytest.mark.parametrize("topic", ["%RETRY%group", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"])
def test_a_message_that_is_sent_again_takes_no_place(tmp_path: Path, topic: str) -> None:
    """It keeps the properties of the message that it was, offsets in further queues among them."""
    with open_small(tmp_path, **LIGHT) as store:
        for n in range(3):
            put(store, "%LMQ%a", b"%d" % n)
        first = dispatched(store).get(0)
        store.put_message(topic, b"again", properties=first.properties)
        dispatched(store)
        assert [m.body for m in everything(store, "%LMQ%a")] == [b"0", b"1", b"2"]
    assert tools.verify(tmp_path).ok


@pytest.mark.parametrize("name", ["%LMQ%a", "invoices"])
def test_what_is_prepared_or_rolled_back_takes_no_place(tmp_path: Path, name: str) -> None:
    """Format 2.4: it gets a unit in no queue, so the next message goes on where the one before ended."""
    prepared, commit, rollback = 4, 8, 12
    names = {"INNER_MULTI_DISPATCH": name}
    with open_small(tmp_path, **LIGHT) as store:
        for n, kind in enumerate((0, prepared, rollback, commit, 0)):
            store.put_message("orders", b"%d" % n, properties=names, sys_flag=kind)
        dispatched(store)
        assert [m.body for m in everything(store, name)] == [b"0", b"3", b"4"]
        assert store.max_queue_offset(name, 0) == store.max_queue_offset("orders", 0) == 3
    assert tools.verify(tmp_path).ok


def test_a_stored_record_that_names_a_queue_twice(tmp_path: Path) -> None:
    """RocketMQ writes such a record: a search by time ends, and a poll comes on."""
    made = MadeStore(tmp_path, queue_file_size=2000)
    for n in range(3):
        names = {
            "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%a",
            "INNER_MULTI_QUEUE_OFFSET": f"{2 * n},{2 * n + 1}",
        }
        made.put(body=b"%d" % n, tags="t", properties=names)
    with open_small(tmp_path, consume_queue_file_size_bytes=2000) as store:
        late = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
        assert dispatched(store).offset_at("%LMQ%a", 0, late) == 6
        with store.consumer("%LMQ%a", queue_id=0, tags="t") as consumer:
            found = [message.body for _ in range(6) for message in consumer.poll(1)]
        assert found == [b"0", b"0", b"1", b"1", b"2", b"2"]


def test_offsets_that_a_message_brings_along_take_no_place(tmp_path: Path) -> None:
    """Of two records that say they are at one place of a queue, the first one is."""
    made = MadeStore(tmp_path)
    for n in range(2):
        made.put("invoices", body=b"%d" % n)
        names = {"INNER_MULTI_DISPATCH": "invoices", "INNER_MULTI_QUEUE_OFFSET": str(n)}
        made.put("orders", body=b"copied", properties=names)
    with open_small(tmp_path) as store:
        assert [m.body for m in everything(dispatched(store), "invoices")] == [b"0", b"1"]


def test_no_message_moves_the_end_of_another_topic(store: Store) -> None:
    """Whoever puts says neither here nor there where a queue of others goes on: its consumers would
    pass over what comes."""
    store.writer("invoices", queue_id=0).put(b"0")
    evil = {"INNER_MULTI_DISPATCH": "invoices", "INNER_MULTI_QUEUE_OFFSET": "1000"}
    store.put_message("orders", b"evil", properties=evil)
    with store.consumer("invoices", queue_id=0) as consumer:
        assert [m.body for m in consumer.poll()] == [b"0"]
        store.writer("invoices", queue_id=0).put(b"1")
        assert [m.body for m in consumer.poll()] == [b"1"]
    assert "INNER_MULTI_QUEUE_OFFSET" not in everything(store)[0].properties


@pytest.mark.parametrize("offset", ["2", "1000", "4000000"])
def test_no_stored_record_moves_the_end_of_another_topic(tmp_path: Path, offset: str) -> None:
    """The same in a log that a broker wrote for whom these were ordinary properties."""
    made = MadeStore(tmp_path)
    made.put("invoices", body=b"0")
    evil = {"INNER_MULTI_DISPATCH": "invoices", "INNER_MULTI_QUEUE_OFFSET": offset}
    made.put("orders", body=b"evil", properties=evil)
    made.put("invoices", body=b"1")
    with open_small(tmp_path) as store:
        assert dispatched(store).max_queue_offset("invoices", 0) == 2
        assert [m.body for m in everything(store, "invoices")] == [b"0", b"1"]


def test_each_queue_tells_of_arrivals(tmp_path: Path) -> None:
    """Semantics 8.7, and each by its own name, however many queues come to be."""
    heard: list[tuple[str, int, int]] = []
    with open_small(
        tmp_path,
        on_arrival=lambda *call: heard.append(call[:3]),
        commit_log_file_size_bytes=1 << 18,
        **LIGHT,
    ) as store:
        for n in range(100):
            put(store, f"%LMQ%{n},%LMQ%all")
        dispatched(store)
    assert [call for call in heard if call[0] == "orders"] == [
        ("orders", 0, n) for n in range(1, 101)
    ]
    assert [call for call in heard if call[0] == "%LMQ%all"] == [
        ("%LMQ%all", 0, n) for n in range(1, 101)
    ]
    assert {call for call in heard if call[0] not in ("orders", "%LMQ%all")} == {
        (f"%LMQ%{n}", 0, 1) for n in range(100)
    }


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_damaged_list_of_queues_takes_no_unit_out(tmp_path: Path, mode: Any) -> None:
    """The record of the last unit no longer names its queue: a reader gets the error, not an end."""
    with open_small(tmp_path, **LIGHT) as store:
        results = [put(store, "%LMQ%a", b"%d" % n) for n in range(3)]
        put(store, "%LMQ%c")
    segment = next((tmp_path / "commitlog").iterdir())
    at = segment.read_bytes().index(b"%LMQ%a", results[-1].physical_offset)
    write_at(segment, at, b"%LMQ%b")
    with open_small(tmp_path, mode, check_queues=mode == "rw", **LIGHT) as store:
        consumer = store.consumer("%LMQ%a")
        assert [bytes(m.body) for m in consumer.poll(2)] == [b"0", b"1"]
        with pytest.raises(CorruptRecordError):
            consumer.poll()
