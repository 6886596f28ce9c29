"""Messages with a time of their own: delivered then, listed, cancelled, given another time."""

from __future__ import annotations

import datetime
import logging
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import NewMessage
from rocketstore.errors import MessageRejectedError, StoreReadOnlyError
from rocketstore.services.delay import delivery, timer_delivery, timer_table
from rocketstore.services.delay import timers as timers_module
from rocketstore.testing import ManualClock
from tests.services.delay_tools import NOW_MS, bodies, crash, read
from tests.services.timer_tools import TOPIC, at, put_at, saved, settled, state_of, timers_of
from tests.support.small_store import engine_of, open_small
from tests.support.waiting import wait_until

SECOND = datetime.timedelta(seconds=1)


def test_messages_come_at_their_times_whatever_their_order(
    tmp_path: Path, clock: ManualClock
) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        for seconds in (7, 3, 400 * 86400, 5, 1):
            put_at(store, b"%d" % seconds, seconds, tags="t", properties={"p": "1"})
        store.writer("orders", queues=2).put(b"2", deliver_after=2 * SECOND, shard_key="k")
        seen = list[bytes]()
        for n in range(1, 8):
            clock.advance(1)
            settled(store)
            seen = bodies(store)
            assert max(map(int, seen)) <= n
        assert sorted(seen) == [b"1", b"2", b"3", b"5", b"7"]
        assert seen.index(b"1") < seen.index(b"3") < seen.index(b"5") < seen.index(b"7")
        first = next(m for m in read(store) if m.body == b"1")
        assert first.tags == "t"
        assert set(first.properties) == {"TAGS", "p", "UNIQ_KEY", "__DELAYED"}
        assert [w.message.body for w in store.delayed] == [b"%d" % (400 * 86400)]


def test_what_waits_has_the_form_of_rocketmq(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        store.writer("orders", queue_id=3).put(b"x", deliver_at=at(5), keys="k")
        (waiting,) = store.consumer(TOPIC)
        assert (waiting.topic, waiting.queue_id) == (TOPIC, 0)
        properties = waiting.properties
        assert len(properties.pop("UNIQ_KEY")) == 32
        due = f"{at(5)}"
        assert properties == {
            "KEYS": "k",
            "TIMER_DELIVER_MS": due,
            "TIMER_OUT_MS": due,
            "REAL_TOPIC": "orders",
            "REAL_QID": "3",
        }


def test_a_time_that_is_not_to_come_is_now(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        writer = store.writer("orders")
        writer.put(b"a", deliver_at=NOW_MS)
        writer.put(b"b", deliver_at=datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
        writer.put(b"c", deliver_after=-SECOND)
        store.put_message("orders", b"d", properties={"TIMER_DELIVER_MS": "5"})
        store.put_batch([NewMessage("orders", b"e", deliver_after=datetime.timedelta(0))])
        assert bodies(store) == [b"a", b"b", b"c", b"d", b"e"]
        assert len(store.delayed) == 0


def test_list_and_count(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        put_at(store, b"a", 5)
        store.writer("bills").put(b"b", deliver_at=at(3))
        store.writer("bills").put(b"level", delay_level=1)
        delayed = store.delayed
        assert len(delayed) == 3
        assert [w.message.body for w in delayed] == [b"level", b"b", b"a"]
        assert [w.level for w in delayed] == [1, 0, 0]
        assert delayed.count("bills") == 2
        assert delayed.count(end=at(5)) == 2
        assert delayed.count("orders", end=at(5)) == 0
        assert delayed.next_due_time == datetime.datetime.fromtimestamp(at(1) / 1000, datetime.UTC)
        with rocketstore.open(path, "r") as reader:
            assert [w.message.body for w in reader.delayed] == [b"level", b"b", b"a"]
            with pytest.raises(StoreReadOnlyError):
                reader.delayed.cancel("id")


def test_cancel_and_reschedule(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        results = [put_at(store, b"%d" % n, 10 + n) for n in range(4)]
        put_at(store, b"named", 10, properties={"UNIQ_KEY": "mine"})
        put_at(store, b"named too", 30, properties={"UNIQ_KEY": "mine"})
        delayed = store.delayed
        assert delayed.cancel(results[0])
        assert not delayed.cancel(results[0])
        assert not delayed.reschedule(results[0], at(1))
        assert delayed.cancel("mine")
        assert not delayed.cancel("mine")
        assert delayed.reschedule(results[1], datetime.timedelta(seconds=50))
        with pytest.raises(TypeError, match="when = 1.5: expected"):
            delayed.reschedule(results[1], 1.5)  # type: ignore[arg-type]
        [moved] = [one for one in delayed if one.unique_id == read_id(store, results[1])]
        assert moved.due_time == clock.now + datetime.timedelta(seconds=50)
        assert delayed.reschedule(moved, clock.now + datetime.timedelta(seconds=100))
        assert delayed.reschedule(next(w for w in delayed if w.message.body == b"2"), 0)
        wait_until(lambda: bodies(store) == [b"2"])
        assert not delayed.cancel(results[2])
        assert len(delayed) == 2
        image = crash(path, tmp_path / "copy")
        clock.advance(20)
        settled(store)
        assert bodies(store) == [b"2", b"3"]
        again = next(iter(delayed))
        assert (again.message.body, again.unique_id) == (b"1", read_id(store, results[1]))
        clock.advance(80)
        wait_until(lambda: bodies(store) == [b"2", b"3", b"1"])
        assert len(delayed) == 0
        store.writer("orders").put(b"level", delay_level=5)
        with pytest.raises(MessageRejectedError, match="delay level"):
            delayed.cancel(next(iter(delayed)))
    with open_small(image, clock=clock) as store:
        wait_until(lambda: bodies(store) == [b"2", b"3", b"1"])
        settled(store)
        assert len(store.delayed) == 0


def read_id(store: rocketstore.Store, result: Any) -> str:
    return str(store.get(result.physical_offset).properties["UNIQ_KEY"])


@pytest.mark.parametrize("form", ["{id}", "orders+{id}"])
def test_a_marker_of_rocketmq_cancels(tmp_path: Path, clock: ManualClock, form: str) -> None:
    """5.3.2 to 5.3.4 write the topic before the id, others the id alone."""
    with open_small(tmp_path / "store", clock=clock) as store:
        put_at(store, b"x", 5, properties={"UNIQ_KEY": "an+id"})
        put_at(store, b"y", 5, properties={"UNIQ_KEY": "other"})
        store.writer("bills").put(b"z", deliver_at=at(5), properties={"UNIQ_KEY": "an+id"})
        marker = {"TIMER_DEL_UNIQKEY": form.format(id="an+id"), "TIMER_DELIVER_MS": f"{at(5)}"}
        store.put_message("orders", b"", properties=marker)
        clock.advance(5)
        settled(store)
        assert bodies(store) == [b"y"]
        assert bodies(store, "bills") == ([] if form == "{id}" else [b"z"])


def cancel_as_rocketmq(store: rocketstore.Store, unique_id: str) -> None:
    marker = {"TIMER_DEL_UNIQKEY": unique_id, "TIMER_DELIVER_MS": f"{at(5)}"}
    store.put_message("orders", b"", properties=marker)


def test_a_marker_that_comes_while_a_round_goes_on_cancels(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time comes after the marker, but in a round that has not seen the marker."""
    with open_small(tmp_path / "store", clock=clock) as store:
        put_at(store, b"x", 5, properties={"UNIQ_KEY": "an id"})
        put_at(store, b"y", 5)
        settled(store)
        timers = timers_of(store)
        caught_up = timers.catch_up

        def and_more(*arguments: int) -> bool:
            done = caught_up(*arguments)
            monkeypatch.undo()
            cancel_as_rocketmq(store, "an id")
            clock.advance(5)
            return done

        monkeypatch.setattr(timers, "catch_up", and_more)
        put_at(store, b"z", 4)  # which starts a round
        wait_until(lambda: len(read(store, TOPIC)) == 4)
        settled(store)
        assert bodies(store) == [b"z", b"y"]


def test_all_of_the_topic_is_known_before_anything_is_delivered(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker far from its message, where the whole topic is read again."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        put_at(store, b"x", 5, properties={"UNIQ_KEY": "an id"})
        for n in range(10):
            put_at(store, b"%d" % n, 5)
        cancel_as_rocketmq(store, "an id")
        settled(store)
    state_of(path).unlink()
    monkeypatch.setattr(timers_module, "LOOK", 2)
    monkeypatch.setattr(timer_delivery, "LOOK", 2)
    clock.advance(5)
    with open_small(path, clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"%d" % n for n in range(10)]


def test_a_record_that_rocketmq_rolled_takes_the_place_of_the_first(
    tmp_path: Path, clock: ManualClock
) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        put_at(store, b"x", 5, properties={"UNIQ_KEY": "a"})
        (first,) = store.consumer(TOPIC)
        rolled = first.properties | {"TIMER_ROLL_TIMES": "1"}
        store.put_message(TOPIC, b"x", properties=rolled)
        store.put_message(TOPIC, b"no", properties=rolled | {"TIMER_ENQUEUE_MS": f"{2**63 - 1}"})
        assert len(store.delayed) == 1
        clock.advance(5)
        settled(store)
        assert bodies(store) == [b"x"]


def test_properties_of_rocketmq_ask_for_a_time(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        for n, name in enumerate(("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")):
            value = (at(4), 3000, 2)[n]
            store.put_message("orders", b"%d" % n, properties={name: f"{value}"})
        assert [w.due_time.timestamp() * 1000 - NOW_MS for w in store.delayed] == [2000, 3000, 4000]
        with pytest.raises(MessageRejectedError, match="TIMER_DELAY_MS"):
            store.put_message("orders", b"", properties={"TIMER_DELAY_MS": "soon"})


def test_the_clock_is_stepped(tmp_path: Path, clock: ManualClock) -> None:
    """The time is one of the day: a step ahead makes messages due, a step back has them wait."""
    with open_small(tmp_path / "store", clock=clock) as store:
        put_at(store, b"a", 5)
        put_at(store, b"b", 3600)
        clock.set(NOW_MS - 86_400_000)
        put_at(store, b"c", -10)
        clock.set(at(-10))
        wait_until(lambda: bodies(store) == [b"c"])
        clock.set(at(4000))
        wait_until(lambda: bodies(store) == [b"c", b"a", b"b"])
        clock.set(at(-100))
        put_at(store, b"d", -50)
        clock.set(at(-50))
        wait_until(lambda: bodies(store) == [b"c", b"a", b"b", b"d"])
        assert len(store.delayed) == 0


def test_precision(tmp_path: Path) -> None:
    """By the clock of the system."""
    with open_small(tmp_path / "store") as store:
        writer = store.writer("orders")
        writer.put(b"", deliver_after=datetime.timedelta(milliseconds=1))
        wait_until(lambda: len(bodies(store)) == 1)

        def half_come_in_time() -> bool:
            before = len(bodies(store))
            due = [int(time.time() * 1000) + 100 + 37 * n for n in range(20)]
            for due_ms in due:
                writer.put(b"%d" % due_ms, deliver_at=due_ms)
            wait_until(lambda: len(bodies(store)) == before + 20)
            late = [m.store_timestamp_ms - int(m.body) for m in read(store)[before:]]
            assert min(late) >= 0
            return sorted(late)[10] <= 100

        wait_until(half_come_in_time)  # a busy machine may stand still in a round


def test_what_cannot_be_delivered_is_tried_again(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, put = tmp_path / "store", delivery.put_message

    def refuse_one(engine: Any, topic: str, body: Any, *rest: Any, **named: Any) -> Any:
        if bytes(body) == b"a":
            raise MessageRejectedError("not now")
        return put(engine, topic, body, *rest, **named)

    with open_small(path, clock=clock) as store:
        monkeypatch.setattr(delivery, "put_message", refuse_one)
        put_at(store, b"a", 1)
        put_at(store, b"b", 2)
        clock.advance(3)
        wait_until(lambda: bodies(store) == [b"b"])
        assert [row[:2] for row in store.delayed.undelivered] == [(0, 0)]
        assert [w.message.body for w in store.delayed] == [b"a"]
        monkeypatch.undo()
        wait_until(lambda: bodies(store) == [b"b", b"a"])
        saved(store)
    with open_small(path, clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"b", b"a"]


def test_many_are_kept_in_runs(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are made, merged and left behind; what was cancelled leaves them."""
    monkeypatch.setattr(timer_table, "RECENT", 16)
    monkeypatch.setattr(timer_table, "LIKE", 3)
    monkeypatch.setattr(timer_table, "GONE", 20)
    path = tmp_path / "store"
    expected = list[bytes]()
    with open_small(path, clock=clock, durability="os") as store:
        results = list[Any]()
        for n in range(400):
            seconds = 1 + n * 7919 % 400
            body = b"%d" % seconds
            results.append(put_at(store, body, seconds))
            expected.append(body)
            if n % 100 == 99:
                saved(store)
        for result, body in list(zip(results, expected, strict=True))[::9]:
            assert store.delayed.cancel(result)
            expected.remove(body)
        assert len(store.delayed) == len(expected)
        saved(store)
        assert timers_of(store).table.runs
    expected.sort(key=int)
    with open_small(path, clock=clock) as store:
        assert [w.message.body for w in store.delayed] == expected
        clock.advance(200)
        settled(store)
        some = [body for body in expected if int(body) <= 200]
        assert bodies(store) == some
    with open_small(path, clock=clock) as store:
        assert len(store.delayed) == len(expected) - len(some)
        clock.advance(200)
        settled(store)
        assert bodies(store) == expected
        assert len(store.delayed) == 0
        saved(store)
    names = {file.name for file in (path / "rocketstore" / "timers").iterdir()}
    assert names == {"state"}


def test_retention_keeps_what_waits(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        put_at(store, b"a", 1)
        store.writer("fill").put(b"." * 3000)
        place = put_at(store, b"b", 50).physical_offset
        clock.advance(1)
        settled(store)
        assert engine_of(store).guests.holds() == [("timers", place)]
    with open_small(path, clock=clock, deliver_delayed=False) as store:
        assert engine_of(store).guests.holds() == [("timers", place)]


def test_what_is_cancelled_holds_nothing(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        first = put_at(store, b"a", 5000)
        last = put_at(store, b"b", 50)
        holds = engine_of(store).guests.holds
        assert len(store.delayed) == 2
        assert holds() == [("timers", first.physical_offset)]
        store.delayed.cancel(first)
        assert holds() == [("timers", last.physical_offset)]
        store.delayed.cancel(last)
        assert len(store.delayed) == 0
        assert holds() == []


def test_the_latest_times(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        store.writer("orders").put(
            b"a", deliver_at=datetime.datetime.max.replace(tzinfo=datetime.UTC)
        )
        times = {"TIMER_OUT_MS": f"{2**63 - 1}", "REAL_TOPIC": "orders", "REAL_QID": "0"}
        store.put_message(TOPIC, b"b", properties=times)
        assert [w.due_time.year for w in store.delayed] == [9999, 9999]
        assert bodies(store) == []


def test_nothing_is_logged_in_good_weather(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        with open_small(tmp_path / "store", clock=clock) as store:
            put_at(store, b"a", 50)
            settled(store)
    assert not caplog.records
