"""Messages that come again: at each of their times once, until they are cancelled."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from rocketstore.errors import DiskFullError, MessageRejectedError, StoreReadOnlyError
from rocketstore.services.delay import timer_delivery, timer_file
from rocketstore.testing import ManualClock
from tests.services.delay_tools import bodies, crash, read, refuse
from tests.services.timer_tools import (
    MINUTE,
    TOPIC,
    at,
    begun,
    due_s,
    pass_minutes,
    put_at,
    saved,
    settled,
    state_of,
    timers_of,
)
from tests.support.small_store import open_small
from tests.support.waiting import wait_until

# ---- delivery ----


def test_it_comes_each_time_until_it_is_cancelled(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        name = begun(store, properties={"a": "b", "TAGS": "t"}, queue_id=1)
        pass_minutes(store, clock, 3)
        found = read(store)
        assert [message.body for message in found] == [b"beat"] * 3
        assert {message.queue_id for message in found} == {1}
        assert {message.tags for message in found} == {"t"}
        assert all(message.properties["a"] == "b" for message in found)
        assert all(message.properties["UNIQ_KEY"] == name for message in found)
        assert not any("EVERY" in key or "TIMER" in key for key in found[-1].properties)
        (waiting,) = store.delayed
        assert (waiting.every, waiting.unique_id) == ("ms 60000", name)
        assert due_s(store) == [240]
        assert store.delayed.cancel(name)
        assert not store.delayed.cancel(name)
        pass_minutes(store, clock, 2)
        assert len(read(store)) == 3
        assert len(store.delayed) == 0
    with open_small(path, clock=clock) as store:
        pass_minutes(store, clock, 1)
        assert len(read(store)) == 3


def test_times_that_pass_are_one_delivery(tmp_path: Path, clock: ManualClock) -> None:
    """While the store is closed, and by a step of the clock."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        begun(store)
        pass_minutes(store, clock, 1)
    clock.advance(330)
    with open_small(path, clock=clock) as store:
        settled(store)
        assert len(read(store)) == 2
        assert due_s(store) == [420]  # in the step of the first
        clock.advance(120)
        settled(store)
        assert len(read(store)) == 3
        assert due_s(store) == [540]


def test_another_time_is_the_first_of_those_that_follow(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        name = begun(store)
        assert store.delayed.reschedule(name, at(10))
        clock.advance(10)
        settled(store)
        assert len(read(store)) == 1
        assert due_s(store) == [70]


@pytest.mark.parametrize(("start", "first"), [(5, 5), (0, 60), (-61, 59), (-60, 60), (None, 60)])
def test_the_first_time(
    tmp_path: Path, clock: ManualClock, start: int | None, first: float
) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        begun(store, start=None if start is None else at(start))
        assert due_s(store) == [first]


def test_with_an_id_there_is_one(tmp_path: Path, clock: ManualClock) -> None:
    """A program that says at each start what it wants keeps the times; another wish has its place."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        assert begun(store, unique_id="beat") == "beat"
        clock.advance(40)
        end = store.end_offset
        begun(store, unique_id="beat")
        assert store.end_offset == end
        assert due_s(store) == [60]
        begun(store, b"other", unique_id="beat")
        assert due_s(store) == [100]
        clock.advance(60)
        settled(store)
        assert bodies(store) == [b"other"]
        copy = crash(path, tmp_path / "copy")
    state_of(copy).unlink(missing_ok=True)
    with open_small(copy, clock=clock) as store:
        begun(store, b"other", unique_id="beat")
        assert len(store.delayed) == 1
        pass_minutes(store, clock, 1)
        assert bodies(store) == [b"other"] * 2


def test_memory_and_disk(tmp_path: Path, clock: ManualClock) -> None:
    for durability in ("memory", "disk"):
        with open_small(tmp_path / durability, clock=clock, durability=durability) as store:
            begun(store)
            store.flush()
            pass_minutes(store, clock, 3)
            wait_until(lambda: len(read(store)) == 3)


# ---- a stop at any step ----


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("step", ["before", "between", "next", "after"])
def test_a_stop_between_a_copy_and_the_next_time(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, step: str, lost: bool
) -> None:
    """`lost`: what is stored of the timers too."""
    path, copies = tmp_path / "store", list[Path]()
    put_again = timer_delivery.put_again

    def stopped(*arguments: Any) -> int:
        if step == "between":
            store.flush()
            copies.append(crash(path, tmp_path / "copy"))
        end = put_again(*arguments)
        if step == "next":
            store.flush()
            copies.append(crash(path, tmp_path / "copy"))
        return end

    with open_small(path, clock=clock) as store:
        begun(store)
        pass_minutes(store, clock, 1)
        saved(store)
        monkeypatch.setattr(timer_file, "save", refuse)
        monkeypatch.setattr(timer_delivery, "put_again", stopped)
        if step == "before":
            store.flush()
            copies.append(crash(path, tmp_path / "copy"))
        clock.advance(60)
        settled(store)
        if step == "after":
            copies.append(crash(path, tmp_path / "copy"))
        monkeypatch.undo()
    if lost:
        state_of(copies[0]).unlink()
    with open_small(copies[0], clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"beat"] * 2
        assert due_s(store) == [180]
        pass_minutes(store, clock, 2)
        assert bodies(store) == [b"beat"] * 4
        assert len(store.delayed) == 1


def test_no_room_for_the_next_time(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is there: it is not put again, in this open and in the next, which knows it from what
    is stored alone."""
    path = tmp_path / "store"

    def full(*_: object) -> int:
        raise DiskFullError("no room")

    with open_small(path, clock=clock) as store:
        begun(store)
        begun(store, b"gone", unique_id="gone")
        settled(store)
        monkeypatch.setattr(timer_delivery, "put_again", full)
        clock.advance(60)
        wait_until(lambda: len(read(store)) == 1 and timers_of(store).troubles.failures > 1)
        assert isinstance(store.delayed.error, DiskFullError)
        assert store.delayed.cancel("gone")
        timers_of(store).save()
        copy = crash(path, tmp_path / "copy")
        monkeypatch.undo()
        wait_until(lambda: len(read(store, TOPIC)) == 4)
        settled(store)
        assert bodies(store) == [b"beat"]
    with open_small(copy, clock=clock) as store:
        wait_until(lambda: len(read(store, TOPIC)) == 4)
        settled(store)
        assert bodies(store) == [b"beat"]
        pass_minutes(store, clock, 1)
        assert bodies(store) == [b"beat"] * 2


def test_one_that_is_left_over_is_cancelled_for_good(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the state that names it is older than the cancel."""
    path = tmp_path / "store"

    def refused(*_: object) -> None:
        raise MessageRejectedError("not now")

    with open_small(path, clock=clock) as store:
        begun(store, unique_id="left")
        settled(store)
        monkeypatch.setattr(timers_of(store), "raise_early", lambda error: None)
        service = timer_delivery.TimerDelivery
        monkeypatch.setattr(service, "_put", refused)
        clock.advance(60)
        wait_until(lambda: len(store.delayed.undelivered) == 1)
        timers_of(store).save()
        monkeypatch.setattr(timer_file, "save", refuse)
        assert store.delayed.cancel("left")
        store.flush()
        copy = crash(path, tmp_path / "copy")
        monkeypatch.undo()
    with open_small(copy, clock=clock) as store:
        assert len(store.delayed) == 0
        settled(store)
        assert bodies(store) == []


# ---- what is asked for ----


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (ValueError, {"every": datetime.timedelta(0)}),
        (ValueError, {"every": -MINUTE}),
        (TypeError, {"every": None}),
        (MessageRejectedError, {"properties": {"DELAY": "3"}}),
        (MessageRejectedError, {"topic": "a/b"}),
        (MessageRejectedError, {"start": 253_402_300_799_999 + 1}),
        (ValueError, {"unique_id": ""}),
        (ValueError, {"queue_id": -1}),
    ],
    ids=str,
)
def test_what_is_refused(
    tmp_path: Path, clock: ManualClock, error: type[Exception], named: dict[str, Any]
) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        arguments = {"topic": "orders", "body": b"", "every": MINUTE, **named}
        with pytest.raises(error):
            store.delayed.repeat(**arguments)
        assert len(store.delayed) == 0


def test_a_put_cannot_say_it_itself(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path / "store", clock=clock) as store:
        with pytest.raises(MessageRejectedError, match="repeat"):
            store.writer("orders").put(b"", properties={"__EVERY": "ms 1"})
        with open_small(tmp_path / "store", mode="r") as reader, pytest.raises(StoreReadOnlyError):
            begun(reader)


@pytest.mark.parametrize("said", ["no", "ms x", "cron", "cron UTC * *", "cron No/Where * * * * *"])
def test_a_property_that_says_nothing_is_left_over(
    tmp_path: Path, clock: ManualClock, said: str
) -> None:
    """As put_message takes it from anywhere. The others go on."""
    if said.startswith("cron"):
        pytest.importorskip("cronsim", reason="needs rocketstore[cron]")
    with open_small(tmp_path / "store", clock=clock) as store:
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": f"{at(1)}"}
        store.put_message(TOPIC, b"bad", properties={**properties, "__EVERY": said})
        put_at(store, b"good", 1)
        clock.advance(2)
        wait_until(lambda: len(store.delayed.undelivered) == 1)
        wait_until(lambda: bodies(store) == [b"good"])
        assert "__EVERY" in str(store.delayed.undelivered[0][2])
