"""Consumers: order and fairness, ends, groups, filters, damage, and who may use them."""

from __future__ import annotations

import contextlib
import copy
import datetime
import gc
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore.consumer import Consumer, ConsumerBusyError
from rocketstore.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RocketStoreError,
    StoreClosedError,
    StoreReadOnlyError,
)
from rocketstore.log.consumer_offsets import ConsumerOffsets, GroupClaimedError
from rocketstore.log.follower import Follower
from rocketstore.log.layout import StoreLayout
from rocketstore.log.reader import Reader
from rocketstore.log.state_files import make_directories
from tests.made_store import MadeStore, rocketmq_store

FIRST_MS = 1_700_000_000_000


class Setting:
    """A store on disk, a reader of it, and a table of offsets that may be written."""

    def __init__(self, root: Path) -> None:
        self.made = MadeStore(root)
        self.layout = StoreLayout(root)
        make_directories(self.layout)
        self.source = Follower(self.layout, verify=3)
        self.reader = Reader(self.source)
        self.offsets = ConsumerOffsets(self.layout)
        self.offsets.load()
        self.flushes: list[int] = []

    def consumer(self, topic: str = "orders", **options: Any) -> Consumer:
        if "group" in options:
            options.setdefault("offsets", self.offsets)
        return Consumer(self.reader, topic, wait_flushed=self.flushes.append, **options)

    def stored(self, group: str = "billing") -> dict[int, int]:
        again = ConsumerOffsets(self.layout)
        again.load()
        return again.get("orders", group)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tmp_path / "store")
    yield made
    made.source.close()


def offsets_of(messages: Any) -> list[int]:
    return [message.queue_offset for message in messages]


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
    ("offset", "expected"),
    [
        ("earliest", [0, 1, 2, 3, 4]),
        ("latest", []),
        (3, [3, 4]),
        (5, []),
        (datetime.datetime.fromtimestamp(FIRST_MS / 1000 + 0.02, datetime.UTC), [2, 3, 4]),
        (datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC), []),
    ],
)
def test_where_a_consumer_begins(setting: Setting, offset: Any, expected: list[int]) -> None:
    setting.made.fill(5)
    assert offsets_of(setting.consumer(queue_id=0, offset=offset)) == expected


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
        ({"offset": datetime.datetime(2026, 1, 1)}, ValueError),
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
    consumer.seek(datetime.datetime.fromtimestamp(FIRST_MS / 1000 + 0.045, datetime.UTC))
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


def test_damage_is_raised_behind_what_is_sound_and_can_be_stepped_over(setting: Setting) -> None:
    records = setting.made.fill(30)
    setting.made.write_log(records[20].physical_offset + 88, b"\xff")
    consumer = setting.consumer(queue_id=0)
    seen = []
    with pytest.raises(CorruptRecordError):
        seen.extend(consumer)
    seen = offsets_of(seen)
    assert consumer.positions == {0: 20}
    with pytest.raises(CorruptRecordError):
        next(consumer)
    consumer.seek(21)
    assert offsets_of(consumer) == list(range(21, 30))


def test_a_poll_that_meets_damage_loses_nothing(setting: Setting) -> None:
    records = setting.made.fill(30, queue_id=0)
    setting.made.fill(5, queue_id=1)
    setting.made.write_log(records[3].physical_offset + 88, b"\xff")
    consumer = setting.consumer()
    seen = [(m.queue_id, m.queue_offset) for m in consumer.poll(100)]
    assert (0, 2) in seen
    with pytest.raises(CorruptRecordError):
        consumer.poll(100)
    assert len(seen) == len(set(seen))
    positions = consumer.positions
    assert sorted(seen) == [(q, n) for q in (0, 1) for n in range(positions[q])]


def test_a_group_goes_on_where_it_committed(setting: Setting) -> None:
    setting.made.fill(10)
    with setting.consumer(group="billing") as consumer:
        assert offsets_of(consumer.poll(4)) == [0, 1, 2, 3]
        assert consumer.commit() == {0: 4}
        consumer.poll(3)
    with setting.consumer(group="billing") as consumer:
        assert consumer.positions == {0: 4}
        assert next(consumer).queue_offset == 4


def test_iterating_and_closing_commit_nothing(setting: Setting) -> None:
    setting.made.fill(10)
    with setting.consumer(group="billing") as consumer:
        list(consumer)
    assert setting.stored() == {}


def test_a_commit_within_a_loop_covers_the_message_in_hand(setting: Setting) -> None:
    setting.made.fill(10)
    consumer = setting.consumer(group="billing")
    for message in consumer:
        consumer.commit()
        assert setting.stored() == {0: message.queue_offset + 1}


def test_a_commit_waits_for_the_flush_of_what_it_implies(setting: Setting) -> None:
    """D-17: the physical end of the record in front of the furthest offset."""
    first = setting.made.fill(5, queue_id=0)
    second = setting.made.fill(5, queue_id=1)
    consumer = setting.consumer(group="billing")
    consumer.poll(4)
    positions = consumer.commit()
    ends = [
        records[positions[queue_id] - 1].physical_offset + records[positions[queue_id] - 1].size
        for queue_id, records in ((0, first), (1, second))
        if positions[queue_id]
    ]
    assert setting.flushes == [max(ends)]


def test_a_commit_of_nothing_new_waits_for_nothing(setting: Setting) -> None:
    setting.made.fill(5)
    consumer = setting.consumer(group="billing")
    list(consumer)
    consumer.commit()
    consumer.commit()
    assert len(setting.flushes) == 1


def test_a_group_starts_a_queue_without_stored_offset_where_it_is_told(setting: Setting) -> None:
    setting.made.fill(5)
    assert offsets_of(setting.consumer(group="a")) == [0, 1, 2, 3, 4]
    assert offsets_of(setting.consumer(group="b", offset="latest")) == []


def test_a_stored_offset_of_a_queue_to_come_is_kept(setting: Setting) -> None:
    setting.offsets.commit("orders", "billing", {2: 1}, 0, setting.flushes.append)
    consumer = setting.consumer(group="billing")
    assert list(consumer) == []
    setting.made.fill(3, queue_id=2)
    assert offsets_of(consumer) == [1, 2]


def test_one_group_has_one_consumer_of_a_topic(setting: Setting) -> None:
    first = setting.consumer(group="billing")
    with pytest.raises(GroupClaimedError):
        setting.consumer(group="billing")
    setting.consumer(group="audit")
    setting.consumer("payments", group="billing")
    first.close()
    setting.consumer(group="billing")


def test_a_consumer_that_could_not_be_made_claims_nothing(setting: Setting) -> None:
    setting.source.close()
    for _ in range(2):
        with pytest.raises(StoreClosedError):
            setting.consumer(group="billing")


def test_a_forgotten_consumer_gives_its_group_back(setting: Setting) -> None:
    consumer = setting.consumer(group="billing")
    del consumer
    gc.collect()
    setting.consumer(group="billing")


def test_without_a_group_there_is_nothing_to_commit(setting: Setting) -> None:
    with pytest.raises(RocketStoreError, match="group"):
        setting.consumer().commit()


def test_a_group_in_a_store_open_for_reading_reads_but_does_not_commit(setting: Setting) -> None:
    setting.made.fill(5)
    setting.offsets.commit("orders", "billing", {0: 2}, 0, setting.flushes.append)
    read_only = ConsumerOffsets(setting.layout, read_only=True)
    read_only.load()
    consumer = setting.consumer(group="billing", offsets=read_only)
    assert offsets_of(consumer) == [2, 3, 4]
    with pytest.raises(StoreReadOnlyError):
        consumer.commit()


def test_two_threads_at_once_are_an_error(setting: Setting) -> None:
    consumer = setting.consumer(queue_id=0)
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        with contextlib.suppress(StoreClosedError):
            consumer.poll(timeout_s=30)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    with pytest.raises(ConsumerBusyError, match="thread"):
        until_raised(consumer.poll)
    consumer.close()
    thread.join(30)
    assert not thread.is_alive()


def until_raised(call: Callable[[], object]) -> None:
    """Calls again and again: the other thread may not have begun yet."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        call()


def test_a_consumer_may_be_handed_from_thread_to_thread(setting: Setting) -> None:
    setting.made.fill(6)
    consumer = setting.consumer(queue_id=0)
    seen: list[int] = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: seen.extend(offsets_of(consumer.poll(2))))
        thread.start()
        thread.join()
    assert seen == [0, 1, 2, 3, 4, 5]


def test_closing_ends_a_wait_in_another_thread(setting: Setting) -> None:
    consumer = setting.consumer(queue_id=0)
    errors: list[BaseException] = []

    def follow() -> None:
        try:
            next(consumer.follow())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    consumer.close()
    thread.join(30)
    assert [type(error) for error in errors] == [StoreClosedError]


def test_a_closed_consumer_says_so(setting: Setting) -> None:
    setting.made.fill(3)
    consumer = setting.consumer(queue_id=0)
    stream = iter(consumer)
    next(stream)
    consumer.close()
    consumer.close()
    assert consumer.closed
    for call in (consumer.poll, consumer.lag, consumer.commit, lambda: next(consumer)):
        with pytest.raises(StoreClosedError):
            call()
    with pytest.raises(StoreClosedError):
        next(stream)
    assert "closed" in repr(consumer)


@pytest.mark.parametrize("queue_id", [0, None])
def test_a_closed_store_says_so(setting: Setting, queue_id: int | None) -> None:
    consumer = setting.consumer(queue_id=queue_id)
    setting.source.close()
    with pytest.raises(StoreClosedError):
        consumer.poll()


def test_repr_tells_topic_group_and_positions(setting: Setting) -> None:
    setting.made.fill(3)
    consumer = setting.consumer(group="billing")
    next(consumer)
    text = repr(consumer)
    assert "'orders'" in text
    assert "'billing'" in text
    assert "{0: 1}" in text


@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_consumer_cannot_be_copied(setting: Setting, copier: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="reopen"):
        copier(setting.consumer())


def test_a_clean_store_of_rocketmq_is_read_whole(tmp_path: Path) -> None:
    root, expected = rocketmq_store("clean-533", tmp_path)
    source = Follower(StoreLayout(root), verify=3)
    slots = expected["must"]["slots"]
    for topic in source.topics():
        found = [
            [m.topic, m.queue_id, m.queue_offset, m.physical_offset, m.tags_code]
            for m in Consumer(Reader(source), topic)
        ]
        assert sorted(found) == sorted(row for row in slots if row[0] == topic)
    source.close()
