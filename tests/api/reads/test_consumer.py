"""Consumers: order and fairness, ends, polling and following, filters, positions, seeking."""

from __future__ import annotations

import datetime
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rocketstore.consumer import Consumer
from rocketstore.errors import OffsetOutOfRangeError
from rocketstore.log.follow.follower import Follower
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.reader import Reader
from tests.support.consumer_setting import Setting, offsets_of
from tests.support.made_store import rocketmq_store

FIRST_MS = 1_700_000_000_000


def test_iterating_gives_every_message_in_order_and_ends(setting: Setting) -> None:
    records = setting.made.fill(2000)
    found = [(m.queue_offset, m.body) for m in setting.consumer(queue_id=0)]
    assert found == [(r.queue_offset, r.body) for r in records]


def test_a_consumer_that_has_caught_up_goes_on_later(setting: Setting) -> None:
    consumer = setting.consumer(queue_id=0)
    assert list(consumer) == []
    setting.made.fill(3)
    assert offsets_of(consumer) == [0, 1, 2]
    assert list(consumer) == []
    setting.made.fill(2)
    assert offsets_of(consumer) == [3, 4]


def test_next_and_for_share_one_place(setting: Setting) -> None:
    setting.made.fill(10)
    consumer = setting.consumer(queue_id=0)
    assert next(consumer).queue_offset == 0
    for message in consumer:
        if message.queue_offset == 4:
            break
    assert next(consumer).queue_offset == 5
    assert offsets_of(consumer.poll(2)) == [6, 7]
    assert offsets_of(consumer) == [8, 9]
    with pytest.raises(StopIteration):
        next(consumer)


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ({"offset": "earliest"}, [0, 1, 2, 3, 4]),
        ({"offset": "latest"}, []),
        ({"offset": 3}, [3, 4]),
        ({"offset": 5}, []),
        (
            {"when": datetime.datetime.fromtimestamp(FIRST_MS / 1000 + 0.02, datetime.UTC)},
            [2, 3, 4],
        ),
        ({"when": FIRST_MS + 20}, [2, 3, 4]),
        ({"when": datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)}, []),
    ],
)
def test_where_a_consumer_begins(
    setting: Setting, begin: dict[str, Any], expected: list[int]
) -> None:
    setting.made.fill(5)
    assert offsets_of(setting.consumer(queue_id=0, **begin)) == expected


def test_a_time_is_no_offset(setting: Setting) -> None:
    time: Any = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    with pytest.raises(TypeError, match="a time is given by when="):
        setting.consumer(queue_id=0, offset=time)
    with pytest.raises(ValueError, match="offset = 3: not together with when"):
        setting.consumer(queue_id=0, offset=3, when=time)
    consumer = setting.consumer(queue_id=0)
    for wrong in ({}, {"offset": 1, "when": time}):
        with pytest.raises(TypeError, match="one of offset and when="):
            consumer.seek(**wrong)


def test_latest_gives_what_is_put_from_now_on(setting: Setting) -> None:
    setting.made.fill(5)
    consumer = setting.consumer(queue_id=0, offset="latest")
    setting.made.fill(2)
    assert offsets_of(consumer) == [5, 6]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"offset": "newest"}, ValueError),
        ({"offset": -1, "queue_id": 0}, ValueError),
        ({"offset": 5}, ValueError),
        ({"offset": 1.5, "queue_id": 0}, TypeError),
        ({"when": datetime.datetime(2026, 1, 1)}, ValueError),
        ({"reset": "never"}, ValueError),
        ({"tags": ""}, ValueError),
        ({"tags": []}, ValueError),
        ({"group": "a b"}, ValueError),
        ({"group": "a", "offsets": None}, ValueError),
    ],
)
def test_options_that_make_no_sense_are_refused(
    setting: Setting, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        setting.consumer(**options)


def test_all_queues_of_a_topic_are_read_each_in_order(setting: Setting) -> None:
    for _ in range(20):
        for queue_id in (0, 1, 5):
            setting.made.put("orders", queue_id, b"%d" % queue_id)
    setting.made.put("payments", 0)
    setting.made.dispatch()
    by_queue: dict[int, list[int]] = {}
    for message in setting.consumer():
        assert message.topic == "orders"
        by_queue.setdefault(message.queue_id, []).append(message.queue_offset)
    assert by_queue == {queue_id: list(range(20)) for queue_id in (0, 1, 5)}


def test_a_full_queue_does_not_starve_its_neighbours(setting: Setting) -> None:
    setting.made.fill(3000, queue_id=0)
    setting.made.fill(10, queue_id=1)
    consumer = setting.consumer()
    seen = 0
    for message in consumer:
        seen += 1
        if message.queue_id == 1:
            break
    assert seen <= 1024 + 1


def test_a_poll_takes_a_share_of_each_queue(setting: Setting) -> None:
    for queue_id in range(4):
        setting.made.fill(100, queue_id=queue_id)
    batch = setting.consumer().poll(max_messages=40)
    counts = [sum(message.queue_id == n for message in batch) for n in range(4)]
    assert len(batch) == 40
    assert counts == [10, 10, 10, 10]


def test_a_poll_fills_up_from_the_queue_that_has_more(setting: Setting) -> None:
    setting.made.fill(100, queue_id=0)
    setting.made.fill(2, queue_id=1)
    assert len(setting.consumer().poll(max_messages=50)) == 50


def test_polls_together_give_everything_once(setting: Setting) -> None:
    for queue_id in range(3):
        setting.made.fill(70, queue_id=queue_id)
    consumer = setting.consumer()
    seen = []
    while batch := consumer.poll(max_messages=17):
        assert len(batch) <= 17
        seen += [(message.queue_id, message.queue_offset) for message in batch]
    assert sorted(seen) == [(queue_id, n) for queue_id in range(3) for n in range(70)]


def test_a_poll_of_nothing_waits_no_longer_than_told(setting: Setting) -> None:
    consumer = setting.consumer(queue_id=0)
    before = time.monotonic()
    assert consumer.poll(timeout_s=0.05) == []
    assert 0.04 <= time.monotonic() - before < 5
    assert consumer.poll() == []


def test_a_poll_waits_for_the_first_message(setting: Setting) -> None:
    consumer = setting.consumer()
    timer = threading.Timer(0.05, setting.made.fill, (3,))
    timer.start()
    assert offsets_of(consumer.poll(timeout_s=30))[0] == 0
    timer.join()


def test_following_hands_out_messages_as_they_come(setting: Setting) -> None:
    setting.made.fill(3)
    stream = setting.consumer(queue_id=0).follow(timeout_s=30)
    assert [next(stream).queue_offset for _ in range(3)] == [0, 1, 2]
    timer = threading.Timer(0.05, setting.made.fill, (2,))
    timer.start()
    assert [next(stream).queue_offset for _ in range(2)] == [3, 4]
    timer.join()


def test_following_ends_when_nothing_comes_for_the_time(setting: Setting) -> None:
    setting.made.fill(3)
    assert offsets_of(setting.consumer(queue_id=0).follow(timeout_s=0.05)) == [0, 1, 2]


def test_a_queue_that_appears_while_following_is_taken_up(setting: Setting) -> None:
    setting.made.fill(2, queue_id=0)
    stream = setting.consumer(offset="latest").follow(timeout_s=30)
    timer = threading.Timer(0.05, setting.made.fill, (2,), {"queue_id": 7})
    timer.start()
    assert [(m.queue_id, m.queue_offset) for m in (next(stream), next(stream))] == [(7, 0), (7, 1)]
    timer.join()


def test_a_queue_that_appears_while_others_are_busy_is_taken_up(setting: Setting) -> None:
    setting.made.fill(100, queue_id=0)
    consumer = setting.consumer()
    consumer.poll(1)
    setting.made.fill(1, queue_id=3)
    seen = [message.queue_id for _ in range(70) for message in consumer.poll(1)]
    assert 3 in seen


def test_a_topic_may_come_into_being_later(setting: Setting) -> None:
    consumer = setting.consumer("later")
    assert list(consumer) == []
    setting.made.fill(2, topic="later")
    assert offsets_of(consumer) == [0, 1]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("paid", [0, 3, 6]),
        ("paid || refunded", [0, 2, 3, 5, 6, 8]),
        (["paid", "refunded"], [0, 2, 3, 5, 6, 8]),
        ("*", [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (None, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("nothing", []),
    ],
)
def test_only_wanted_tags_are_given(setting: Setting, tags: Any, expected: list[int]) -> None:
    setting.made.fill(9)
    assert offsets_of(setting.consumer(queue_id=0, tags=tags)) == expected


def test_tags_with_the_same_code_are_told_apart(setting: Setting) -> None:
    """Java's hashes of Aa and BB are equal (format 16): the text decides."""
    for number in range(40):
        setting.made.put(tags=("Aa", "BB")[number % 2])
    setting.made.dispatch()
    found = list(setting.consumer(queue_id=0, tags="BB"))
    assert {message.tags for message in found} == {"BB"}
    assert offsets_of(found) == list(range(1, 40, 2))


def test_a_rare_tag_is_found_behind_many_others(setting: Setting) -> None:
    setting.made.fill(3000)
    setting.made.put(tags="rare")
    setting.made.dispatch()
    consumer = setting.consumer(queue_id=0, tags="rare")
    assert offsets_of(consumer.poll(1)) == [3000]
    assert consumer.positions == {0: 3001}


def test_positions_count_what_was_handed_out_not_what_was_fetched(setting: Setting) -> None:
    setting.made.fill(100)
    consumer = setting.consumer(queue_id=0)
    assert consumer.positions == {0: 0}
    stream = iter(consumer)
    for expected in range(1, 8):
        next(stream)
        assert consumer.positions == {0: expected}
    consumer.poll(10)
    assert consumer.positions == {0: 17}


def test_positions_step_over_messages_that_the_filter_took_out(setting: Setting) -> None:
    setting.made.fill(9)
    consumer = setting.consumer(queue_id=0, tags="paid")
    next(consumer)
    assert consumer.positions == {0: 3}
    assert offsets_of(consumer) == [3, 6]
    assert consumer.positions == {0: 9}


def test_positions_in_a_light_queue_are_its_own(tmp_path: Path) -> None:
    """A record stands in queues of its own offset and of others (format 6.7)."""
    root, expected = rocketmq_store("light-queues-533", tmp_path)
    source = Follower(StoreLayout(root), verify=3)
    consumer = Consumer(Reader(source), "%LMQ%y", queue_id=0)
    rows = [row for row in expected["must"]["slots"] if row[0] == "%LMQ%y"]
    for number, row in enumerate(rows):
        assert next(consumer).physical_offset == row[3]
        assert consumer.positions == {0: number + 1}
    source.close()


def test_seek_moves_to_an_offset_an_end_or_a_time(setting: Setting) -> None:
    setting.made.fill(10)
    consumer = setting.consumer(queue_id=0)
    list(consumer)
    consumer.seek(7)
    assert offsets_of(consumer) == [7, 8, 9]
    consumer.seek("earliest")
    assert next(consumer).queue_offset == 0
    consumer.seek("latest")
    assert list(consumer) == []
    consumer.seek(when=datetime.datetime.fromtimestamp(FIRST_MS / 1000 + 0.045, datetime.UTC))
    assert next(consumer).queue_offset == 5


def test_seek_in_the_middle_of_a_loop_takes_effect_at_once(setting: Setting) -> None:
    setting.made.fill(10)
    consumer = setting.consumer(queue_id=0)
    seen = []
    for message in consumer:
        seen.append(message.queue_offset)
        if message.queue_offset == 2:
            consumer.seek(8)
    assert seen == [0, 1, 2, 8, 9]


def test_seek_of_one_queue_leaves_the_others(setting: Setting) -> None:
    setting.made.fill(5, queue_id=0)
    setting.made.fill(5, queue_id=1)
    consumer = setting.consumer()
    consumer.poll(4)
    before = consumer.positions
    consumer.seek(4, queue_id=1)
    assert consumer.positions == {**before, 1: 4}
    with pytest.raises(ValueError, match="queue_id"):
        consumer.seek(4)
    with pytest.raises(ValueError, match="no queue 9"):
        consumer.seek(4, queue_id=9)


def test_lag_counts_what_is_left(setting: Setting) -> None:
    setting.made.fill(5, queue_id=0)
    setting.made.fill(7, queue_id=1)
    consumer = setting.consumer()
    assert consumer.lag() == 12
    next(consumer)
    assert consumer.lag() == 11
    list(consumer)
    assert consumer.lag() == 0


def test_an_offset_below_the_minimum_is_an_error_that_names_the_bounds(
    setting: Setting,
) -> None:
    records = setting.made.fill(60)
    (setting.made.root / "commitlog" / f"{0:020d}").unlink()
    minimum = next(r.queue_offset for r in records if r.physical_offset >= 4096)
    again = Reader(Follower(setting.layout, verify=3))
    consumer = Consumer(again, "orders", queue_id=0, offset=1)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        next(consumer)
    error = caught.value
    assert (error.asked, error.minimum, error.maximum) == (1, minimum, 60)
    assert error.status == "OFFSET_TOO_SMALL"
    assert consumer.statuses == {0: "OFFSET_TOO_SMALL"}
    consumer.seek("earliest")
    assert next(consumer).queue_offset == minimum


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [0, 1, 2]), ("latest", [])])
def test_reset_says_where_to_go_on(setting: Setting, reset: Any, expected: list[int]) -> None:
    setting.made.fill(3)
    consumer = setting.consumer(queue_id=0, offset=50, reset=reset)
    assert offsets_of(consumer) == expected


def test_an_offset_beyond_the_end_is_an_error(setting: Setting) -> None:
    setting.made.fill(3)
    consumer = setting.consumer(queue_id=0, offset=4)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        consumer.poll()
    assert caught.value.status == "OFFSET_OVERFLOW_BADLY"
    assert "reset=" in caught.value.__notes__[0]


def test_an_offset_in_a_queue_that_does_not_exist_is_an_error(setting: Setting) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        list(setting.consumer(queue_id=4, offset=1))
    assert caught.value.status == "NO_MATCHED_LOGIC_QUEUE"
