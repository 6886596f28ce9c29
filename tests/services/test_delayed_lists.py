"""What `store.delayed` says of timers without reading them, and what a cancel says it found."""

from __future__ import annotations

import datetime
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from rocketstore import CancelResult, MessageNotFoundError, MessageRejectedError, Store
from rocketstore.services.delay import timer_table
from rocketstore.services.delay import timers as timers_module
from rocketstore.testing import ManualClock
from tests.services.delay_tools import bodies, idle
from tests.services.timer_tools import at, begun, put_at, saved, settled, state_of, timers_of
from tests.support.retention_tools import ALL, fill
from tests.support.small_store import engine_of, open_small

CANCELLED, DELIVERED, ABSENT = CancelResult


def of_topics(store: Store) -> None:
    """Ten in the order of their time, each third of `bills`."""
    for n in range(10):
        topic = "orders" if n % 3 else "bills"
        store.writer(topic).put(b"%d" % n, deliver_at=at(n + 1), properties={"UNIQ_KEY": f"id{n}"})
    store.flush()


def due(store: Store, *given: Any, **named: Any) -> list[int]:
    listed = [
        one.due_time.timestamp() - at(0) / 1000 for one in store.delayed.messages(*given, **named)
    ]
    named.pop("limit", None)
    assert "limit" in named or store.delayed.count(*given, **named) >= len(listed)
    return [int(seconds) for seconds in listed]


@pytest.mark.quick
@pytest.mark.parametrize("numbers", [1 << 12, 1, 0])
def test_lists_of_a_topic_and_a_span(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    """Also where there are more topics than numbers for them; in runs, in memory, and of a file."""
    monkeypatch.setattr(timer_table, "TOPICS", numbers)
    monkeypatch.setattr(timer_table, "RECENT", 4)
    with open_small(tmp_path, clock=clock) as store:
        of_topics(store)
        store.delayed.cancel("id1")
        saved(store)
        for _ in range(2):
            assert due(store) == [1, *range(3, 11)]
            assert due(store, "bills") == [1, 4, 7, 10]
            assert due(store, "orders") == [3, 5, 6, 8, 9]
            assert due(store, "none") == []
            assert due(store, begin=at(3), end=at(6)) == [3, 4, 5]
            assert due(store, "orders", begin=at(4), limit=2) == [5, 6]
            assert due(store, end=at(1)) == []
            assert due(store, limit=0) == []
            with pytest.raises(ValueError, match="limit = -1: at least 0"):
                store.delayed.messages(limit=-1)
            counts = [store.delayed.count(topic) for topic in ("bills", "orders", "none", None)]
            assert counts == [4, 5, 0, 9]
            assert store.delayed.count("orders", begin=at(3), end=at(8)) == 3
            with open_small(tmp_path, "r") as reader:
                assert due(reader, "bills") == [1, 4, 7, 10]
            timers_of(store).started = False  # what the file says


def test_nothing_is_read_for_a_list(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path, clock=clock) as store:
        of_topics(store)
        saved(store)
        queue = timers_of(store).queue
        monkeypatch.setattr(queue, "message", lambda _: pytest.fail("it was read"))
        assert store.delayed.count("bills") == 4
        listed = list(store.delayed.messages("bills"))
        monkeypatch.undo()
        assert [one.message.body for one in listed] == [b"0", b"3", b"6", b"9"]
        assert repr(listed[0]).startswith("DelayedMessage('bills', due_time=20")
        assert (listed[0].unique_id, listed[0].queue_id, listed[0].every) == ("id0", 0, None)
        later = list(store.delayed.messages("orders"))
        fill(store, 40, "other")
        store.retention.run(ALL)
        with pytest.raises(MessageNotFoundError, match="name what waits by its id"):
            _ = later[0].message


def test_what_the_master_delivers_waits_no_more_in_a_copy(
    tmp_path: Path, clock: ManualClock
) -> None:
    with open_small(tmp_path, clock=clock, deliver_delayed=False) as store:
        put_at(store, b"a", 5)
        engine_of(store).copy_of = "the master"
        assert len(store.delayed) == 1
        engine_of(store).copy_of = ""
        store.put_message("orders", b"a", properties={"__DELAYED": "0:0"})
        engine_of(store).copy_of = "the master"
        assert len(store.delayed) == 0
        engine_of(store).copy_of = ""


def test_get(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        of_topics(store)
        put_at(store, b"again", 0.5, properties={"UNIQ_KEY": "id4"})
        found = store.delayed.get("id4")
        assert found is not None
        assert (found.message.body, found.topic) == (b"again", "orders")
        clock.advance(0.5)
        settled(store)
        found = store.delayed.get("id4")
        assert found is not None
        assert found.message.body == b"4"
        assert store.delayed.get("id77") is None
        assert store.delayed.cancel("id4")
        assert store.delayed.get("id4") is None


@pytest.mark.quick
def test_an_id_of_a_delay_level_is_not_called_absent(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock, delay_levels="1s") as store:
        store.writer("orders").put(b"1", delay_level=1, unique_id="lvl")
        with pytest.raises(MessageRejectedError, match="'lvl': it waits for a delay level"):
            store.delayed.cancel("lvl")
        clock.advance(1)
        idle(store)
        assert store.delayed.cancel("lvl") is DELIVERED


@pytest.mark.quick
@pytest.mark.parametrize("durability", ["os", "disk", "memory"])
def test_which_of_three(tmp_path: Path, clock: ManualClock, durability: Any) -> None:
    with open_small(tmp_path, clock=clock, durability=durability) as store:
        results = [put_at(store, b"%d" % n, 1 + n % 2) for n in range(4)]
        assert store.delayed.cancel(results[2]) is CANCELLED
        names = [one.unique_id for one in store.delayed]
        assert store.delayed.cancel(results[2]) is ABSENT
        assert store.delayed.cancel("never") is ABSENT
        put_at(store, b"twice", 30, properties={"UNIQ_KEY": f"{names[0]}"})
        store.flush()
        clock.advance(1)
        idle(store)
        # As soon as it does not wait, though its copy may not be visible yet.
        assert store.delayed.cancel(results[0]) is DELIVERED
        assert store.delayed.cancel(f"{names[0]}") is CANCELLED
        assert store.delayed.cancel(results[0]) is DELIVERED
        assert store.delayed.cancel(f"{names[0]}") is ABSENT, "the last one was cancelled"
        beat = begun(store, unique_id="beat")
        assert store.delayed.cancel(beat) is CANCELLED
        assert store.delayed.cancel(beat) is ABSENT
        clock.advance(1)
        settled(store)
        assert bodies(store) == [b"0", b"1", b"3"]
        assert [bool(one) for one in CancelResult] == [True, False, False]
        assert str(DELIVERED) == "delivered"


def test_a_cancel_finds_what_was_put_again(tmp_path: Path, clock: ManualClock) -> None:
    """By the result of the put and by a message of a list, as long as the log has their place."""
    with open_small(tmp_path, clock=clock) as store:
        first, second = put_at(store, b"a", 30), put_at(store, b"b", 30)
        listed = list(store.delayed)
        assert store.delayed.reschedule(first, datetime.timedelta(seconds=5))
        assert store.delayed.reschedule(first, datetime.timedelta(seconds=50))
        assert store.delayed.cancel(listed[0]) is CANCELLED
        assert store.delayed.reschedule(second, datetime.timedelta(seconds=1))
        clock.advance(1)
        settled(store)
        assert store.delayed.cancel(second) is DELIVERED
        late = put_at(store, b"late", 99, properties={"UNIQ_KEY": "late"})
        fill(store, 40, "other")
        store.retention.run(ALL)
        with pytest.raises(MessageNotFoundError, match="name what waits by its id"):
            store.delayed.cancel(late)
        assert store.delayed.cancel("late") is CANCELLED
        with pytest.raises(MessageRejectedError, match="no message with a time of its own"):
            store.delayed.cancel(store.writer("orders").put(b"plain"))


def test_a_file_without_topics_is_read_no_more(tmp_path: Path, clock: ManualClock) -> None:
    """It is derived: the topic says what waits."""
    with open_small(tmp_path, clock=clock) as store:
        of_topics(store)
        saved(store)
    text = state_of(tmp_path).read_bytes().partition(b"\n")[2]
    old = json.loads(text) | {"version": 1}
    del old["topics"]
    text = json.dumps(old).encode()
    state_of(tmp_path).write_bytes(b"%08x\n" % zlib.crc32(text) + text)
    with open_small(tmp_path, clock=clock) as store:
        assert store.delayed.count("bills") == 4


def test_what_is_put_again_waits_while_it_is_not_on_disk(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The message before it is at its end then, and no reader can see the one after it."""
    with open_small(tmp_path / "store", clock=clock) as store:
        for number in range(3):
            put_at(store, b"%d" % number, 60 + number)
        settled(store)
        engine = engine_of(store)
        with (waiting := timers_of(store)).lock():
            for number in range(3):
                assert timers_module.reschedule(engine, waiting, number, at(90 + number), 0)
            listed = [one.message.body for one in store.delayed.messages("orders")]
            assert listed == [b"0", b"1", b"2"]
            assert len(store.delayed) == store.delayed.count() == 3
