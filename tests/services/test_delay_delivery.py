"""Delivery of delayed messages: each once, at its time; what cannot be delivered is kept, said and tried again."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import NewMessage
from rocketstore.errors import DiskFullError, MessageRejectedError
from rocketstore.log.layout.log_place import LogPlace
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.services.delay import delivery, progress
from rocketstore.testing import ManualClock
from tests.services.delay_tools import (
    NOW_MS,
    TOPIC,
    bodies,
    due_of,
    file_of,
    idle,
    own_part,
    read,
)
from tests.support.small_store import dispatched, engine_of, open_small
from tests.support.waiting import wait_until


@pytest.mark.quick
def test_a_message_comes_when_it_is_due(tmp_path: Path, clock: ManualClock) -> None:
    """The copy is what was put: without DELAY, REAL_TOPIC and REAL_QID (K-62)."""
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders", queue_id=3)
        writer.put(b"x", tags="a", keys="k", properties={"p": "q"}, flag=9, delay_level=2)
        clock.advance(4.999)
        assert bodies(store) == []
        clock.advance(0.001)
        wait_until(lambda: bodies(store) == [b"x"])
        (message,) = read(store)
        assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, 0)
        assert message.properties == {"p": "q", "TAGS": "a", "KEYS": "k", "__DELAYED": "2:0"}
        assert (message.flag, message.born_timestamp_ms) == (9, NOW_MS)
        assert message.store_timestamp_ms == NOW_MS + 5000
        assert [m.body for m in store.consumer("orders", tags="a")] == [b"x"]
        assert [m.body for m in store.query("orders", "k")] == [b"x"]


def test_levels_do_not_wait_for_each_other(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders")
        for body, level in ((b"c", 3), (b"a", 1), (b"b", 2)):
            writer.put(body, delay_level=level)
        for seconds, expected in ((1, [b"a"]), (4, [b"a", b"b"]), (5, [b"a", b"b", b"c"])):
            clock.advance(seconds)
            wait_until(lambda expected=expected: bodies(store) == expected)


def test_a_put_that_is_due_earlier_wakes_the_thread(tmp_path: Path) -> None:
    """By the clock of the system."""
    with open_small(tmp_path, delay_levels="0s 1d") as store:
        writer = store.writer("orders")
        writer.put(b"late", delay_level=2)
        writer.put(b"soon", delay_level=1)
        wait_until(lambda: bodies(store) == [b"soon"])
        wait_until(lambda: len(store.delayed) == 1)  # a copy comes before its message is passed


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_each_promise(tmp_path: Path, clock: ManualClock, durability: Any) -> None:
    """Also where a message is visible only some time after it was put."""
    with open_small(tmp_path, clock=clock, durability=durability) as store:
        writer = store.writer("orders")
        for n in range(20):
            writer.put(b"%d" % n, delay_level=1, durability="memory")
        clock.advance(1)
        wait_until(lambda: bodies(store) == [b"%d" % n for n in range(20)])
    with open_small(tmp_path, clock=clock) as store:
        assert len(bodies(store)) == 20


def test_all_kinds_of_puts_begin_the_delivery(tmp_path: Path, clock: ManualClock) -> None:
    puts = {
        "put": lambda store: store.writer("orders").put(b"x", delay_level=1),
        "submit": lambda store: store.writer("orders").submit(b"x", delay_level=1),
        "message": lambda store: store.put_message("orders", b"x", properties={"DELAY": "1"}),
        "batch": lambda store: store.put_batch([NewMessage("orders", b"x", delay_level=1)]),
    }
    for name, put in puts.items():
        with open_small(tmp_path / name, clock=clock) as store:
            put(store)
            clock.advance(1)
            wait_until(lambda store=store: bodies(store) == [b"x"])


def test_what_was_due_while_the_store_was_closed(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        store.writer("orders").put(b"x", delay_level=1)
    clock.advance(3600)
    with open_small(tmp_path, clock=clock, deliver_delayed=False) as store:
        assert (len(store.delayed), bodies(store)) == (1, [])
    with open_small(tmp_path, clock=clock) as store:
        wait_until(lambda: bodies(store) == [b"x"])
    with open_small(tmp_path, clock=clock) as store:
        idle(store)
        assert bodies(store) == [b"x"]


def test_many_messages_over_many_segments(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders", queues=4)
        for n in range(1000):
            writer.put(b"%d" % n, delay_level=1 + n % 3)
        clock.advance(10)
        wait_until(lambda: len(bodies(store)) == 1000)
        assert sorted(map(int, bodies(store))) == list(range(1000))
        for level in range(3):
            sources = [m.properties["__DELAYED"].split(":") for m in read(store)]
            own = [int(at) for number, at in sources if int(number) == level + 1]
            assert sorted(own) == list(range(len(own)))


def test_nothing_is_started_without_a_delay(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"x", delay_level=0)
        store.writer("orders").put(b"x")
        assert engine_of(store).guests._made == {}
        assert (len(store.delayed), store.delayed.next_due_time) == (0, None)
        assert engine_of(store).guests._made == {}


def test_a_clock_that_is_set_back(tmp_path: Path, clock: ManualClock) -> None:
    """Store times do not fall, so due times lie far ahead: no message waits longer than its
    delay."""
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders")
        writer.put(b"0", delay_level=2)
        clock.set(NOW_MS - 3_600_000)
        writer.put(b"1", delay_level=2)
        assert store.get(store.begin_offset).store_timestamp_ms == NOW_MS
        wait_until(lambda: due_of(store, 2) == NOW_MS - 3_600_000 + 5000)
        clock.advance(4.999)
        assert bodies(store) == []
        clock.advance(0.001)
        wait_until(lambda: bodies(store) == [b"0", b"1"])
        clock.set(NOW_MS)
        writer.put(b"2", delay_level=2)
        clock.set(NOW_MS + 4999)
        assert bodies(store) == [b"0", b"1"]


def test_a_clock_that_is_set_ahead(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        store.writer("orders").put(b"0", delay_level=18)
        clock.set(NOW_MS + 7_200_000)
        wait_until(lambda: bodies(store) == [b"0"])


@pytest.mark.parametrize("levels", ["1s", "1s 1s 1s", "1d 1d 1d 1d"])
def test_another_table_of_levels_changes_nothing_stored(
    tmp_path: Path, clock: ManualClock, levels: str
) -> None:
    """K-63: units hold the due time; a broker would deliver early, or late."""
    with open_small(tmp_path, clock=clock, delay_levels="10s 20s 30s") as store:
        store.writer("orders").put(b"x", delay_level=3)
    with open_small(tmp_path, clock=clock, delay_levels=levels) as store:
        clock.advance(29.9)
        store.writer("other").put(b"y", delay_level=1)
        assert bodies(store) == []
        clock.advance(0.1)
        wait_until(lambda: bodies(store) == [b"x"])


def test_what_waits_is_listed(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        for n in range(4):
            store.writer("orders" if n % 2 else "bills", queue_id=n).put(
                b"%d" % n, delay_level=4 - n
            )
        assert (len(store.delayed), bool(store.delayed)) == (4, True)
        assert store.delayed.next_due_time == at(1)
        found = [(w.topic, w.queue_id, w.level, w.due_time) for w in store.delayed]
        assert found == [
            *(("orders", 3, 1, at(1)), ("bills", 2, 2, at(5))),
            *(("orders", 1, 3, at(10)), ("bills", 0, 4, at(30))),
        ]
        assert store.delayed.count("orders") == 2
        assert store.delayed.count(end=at(10)) == 2
        assert [w.message.body for w in store.delayed.messages("bills", end=at(31))] == [
            *(b"2", b"0")
        ]
        clock.advance(1)
        wait_until(lambda: len(store.delayed) == 3)
        assert repr(store.delayed).startswith("Delayed(3 messages")
    with open_small(tmp_path, "r") as reader:
        assert len(reader.delayed) == 3
        assert reader.delayed.next_due_time == at(5)
        assert [w.level for w in reader.delayed] == [2, 3, 4]
        waiting = reader.delayed
    with pytest.raises(rocketstore.StoreClosedError):
        len(waiting)


def at(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(NOW_MS / 1000 + seconds, datetime.UTC)


def test_a_message_says_when_it_is_due(tmp_path: Path, clock: ManualClock) -> None:
    """Where it was read from its queue, by a consumer of any mode."""
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders")
        for _ in range(50):
            writer.put(b"x", delay_level=3)
        store.writer("orders").put(b"now")
        store.put_message(TOPIC, b"none", queue_id=3, properties={"DELAY": "0", "TAGS": "a"})
        with open_small(tmp_path, "r") as reader:
            for one in (store, reader):
                found = {m.due_time for m in one.consumer(TOPIC, queue_id=2)}
                assert found == {at(10)}
                assert [m.due_time for m in one.consumer(TOPIC, queue_id=3)] == [None]
                assert [m.due_time for m in one.consumer("orders")] == [None]
                assert {m.due_time for m in one.consumer(TOPIC, queue_id=2).poll(9)} == {at(10)}
        assert [each.message.due_time for each in store.delayed][:50] == [at(10)] * 50


def test_a_trim_of_what_waits_is_said(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(tmp_path, clock=clock) as store:
        store.writer("bills").put(b"first", delay_level=1)
        clock.advance(1)
        wait_until(lambda: bodies(store, "bills") == [b"first"])
        wait_until(lambda: file_of(tmp_path).exists())
        store.writer("orders").put(b"gone", delay_level=1)
        for _ in range(30):
            store.writer("other").put(b"x" * 500)
        store.writer("orders").put(b"kept", delay_level=1)
        store.flush()
        dispatched(store)  # what is not stays
        assert store.trim(before_offset=3 * 4096) > 0
        with caplog.at_level(logging.WARNING):
            clock.advance(1)
            wait_until(lambda: bodies(store) == [b"kept"])
    assert "1 delayed messages of level 1 were trimmed" in caplog.text


def test_json_of_the_file_is_json_but_for_its_keys(tmp_path: Path) -> None:
    """What else a broker may have stored survives, whatever it is."""
    layout = StoreLayout(tmp_path)
    for directory in (layout.config, layout.tmp):
        directory.mkdir(parents=True)
    rest: dict[str, object] = {"other": {"ü": [1, None]}}
    known = progress.Progress({0: 5, 17: 7}, {3: [1, 2]}, 99, LogPlace(99, 7), True, rest)
    progress.save(layout, known)
    found = progress.load(layout)
    assert (found.offsets, found.undelivered, found.begin) == ({0: 5, 17: 7}, {3: [1, 2]}, 99)
    assert (found.rest["other"], found.log) == ({"ü": [1, None]}, LogPlace(99, 7))


def test_a_message_that_cannot_be_delivered_is_kept(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others of its level go on; it is tried again, also by the next open, and is never dropped."""
    put, refused = delivery.put_message, [b"1"]

    def refuse_some(engine: Any, topic: str, body: Any, *rest: Any, **named: Any) -> Any:
        if bytes(body) in refused:
            raise MessageRejectedError("no such topic today")
        return put(engine, topic, body, *rest, **named)

    monkeypatch.setattr(delivery, "put_message", refuse_some)
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders")
        for n in range(3):
            writer.put(b"%d" % n, delay_level=1)
        clock.advance(1)
        wait_until(lambda: bodies(store) == [b"0", b"2"])
        ((level, offset, error),) = store.delayed.undelivered
        assert (level, offset, str(error)) == (1, 1, "no such topic today")
        wait_until(lambda: len(store.delayed) == 1)
    assert own_part(tmp_path)["rocketstore"]["undelivered"] == {"1": [1]}
    with open_small(tmp_path, "r") as store:
        assert [(level, at) for level, at, _ in store.delayed.undelivered] == [(1, 1)]
    with open_small(tmp_path, clock=clock) as store:
        wait_until(lambda: store.delayed.undelivered[0][2] is not None)
        refused.clear()
        wait_until(lambda: bodies(store) == [b"0", b"2", b"1"])
        wait_until(lambda: store.delayed.undelivered == [])
    assert own_part(tmp_path)["rocketstore"]["undelivered"] == {}


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "1"},
        {"DELAY": "1", "REAL_TOPIC": "orders"},
        {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "x"},
        {"DELAY": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "0"},
        {"DELAY": "1", "REAL_TOPIC": "no topic", "REAL_QID": "0"},
        {"DELAY": "1", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
def test_a_message_that_does_not_say_where_it_goes(
    tmp_path: Path, clock: ManualClock, properties: dict[str, str]
) -> None:
    with open_small(tmp_path, clock=clock) as store:
        store.put_message(TOPIC, b"bad", properties=properties)
        store.writer("orders").put(b"good", delay_level=1)
        clock.advance(2)
        wait_until(lambda: bodies(store) == [b"good"])
        ((level, offset, error),) = store.delayed.undelivered
        assert (level, offset) == (1, 0)
        assert isinstance(error, MessageRejectedError)


def test_a_full_disk_delays_and_loses_nothing(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, room = delivery.put_message, list[int]()

    def refuse_all(*given: Any, **named: Any) -> Any:
        if not room:
            raise DiskFullError(28, "no room")
        return put(*given, **named)

    monkeypatch.setattr(delivery, "put_message", refuse_all)
    with open_small(tmp_path, clock=clock) as store:
        for n in range(3):
            store.writer("orders").put(b"%d" % n, delay_level=1)
        clock.advance(1)
        wait_until(lambda: isinstance(store.delayed.error, DiskFullError))
        assert (len(store.delayed), store.delayed.undelivered) == (3, [])
        room.append(1)
        wait_until(lambda: bodies(store) == [b"0", b"1", b"2"])
        wait_until(lambda: store.delayed.error is None)


def test_an_error_of_the_service_leaves_the_store_at_work(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path, clock=clock) as store:
        with monkeypatch.context() as patched:
            patched.setattr(delivery, "waiting_queues", lambda _: 1 / 0)
            store.writer("orders").put(b"x", delay_level=1)
            wait_until(lambda: isinstance(store.delayed.error, ZeroDivisionError))
            store.writer("orders").put(b"y")
            assert bodies(store) == [b"y"]
        clock.advance(1)
        wait_until(lambda: bodies(store) == [b"y", b"x"])
        wait_until(lambda: store.delayed.error is None)  # at the end of that round
