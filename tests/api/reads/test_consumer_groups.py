"""Consumers: damage, groups and commits, threads, closing."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore import ConsumerBusyError
from rocketstore.consumer import Consumer
from rocketstore.consuming.consumer_offsets import GroupClaimedError
from rocketstore.consuming.followed_offsets import FollowerOffsets
from rocketstore.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RocketStoreError,
    StoreClosedError,
    StoreReadOnlyError,
)
from rocketstore.log.follow.follower import Follower
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.reader import Reader
from tests.support.consumer_setting import Setting, offsets_of
from tests.support.made_store import rocketmq_store


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


@pytest.mark.parametrize(("queue_id", "end"), [(0, 5), (7, 0)])
def test_a_position_beyond_the_end_is_not_committed(
    setting: Setting, queue_id: int, end: int
) -> None:
    """D-17: the next message is put behind the largest stored offset, so there would be a gap."""
    setting.made.fill(5)
    consumer = setting.consumer(group="billing", queue_id=queue_id, offset=end + 1)
    with pytest.raises(
        OffsetOutOfRangeError, match=f"offset {end + 1} is outside 0 … {end}"
    ) as info:
        consumer.commit()
    assert "seek() to an offset that exists" in info.value.__notes__[0]
    assert (setting.stored(), setting.flushes) == ({}, [])
    consumer.seek("latest")
    assert consumer.commit() == {queue_id: end}


def test_a_stored_offset_beyond_the_end_stays_until_the_group_is_elsewhere(
    setting: Setting,
) -> None:
    """As of a queue of which nothing is left: who does not move the position may commit."""
    setting.made.fill(5, queue_id=1)
    setting.offsets.commit("orders", "billing", {0: 9}, 0, setting.flushes.append)
    consumer = setting.consumer(group="billing", queue_id=0)
    assert consumer.commit() == setting.stored() == {0: 9}
    consumer.seek("earliest")
    assert consumer.commit() == setting.stored() == {0: 0}


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


def test_a_group_in_a_store_open_for_reading_reads_but_does_not_commit(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.made.fill(5)
    setting.offsets.commit("orders", "billing", {0: 2}, 0, setting.flushes.append)
    read_only = FollowerOffsets(setting.layout)
    consumer = setting.consumer(group="billing", offsets=read_only)
    assert offsets_of(consumer) == [2, 3, 4]
    with pytest.raises(StoreReadOnlyError):
        consumer.commit()
    assert offsets_of(setting.consumer(group="billing", offsets=read_only)) == [2, 3, 4]
    assert offsets_of(setting.consumer(group="other", offsets=read_only)) == [0, 1, 2, 3, 4]
    said = [record.args for record in caplog.records if "is not shared" in record.message]
    assert said == [(setting.layout.root, "billing"), (setting.layout.root, "other")]


def test_two_threads_at_once_are_an_error(setting: Setting) -> None:
    consumer = setting.consumer(queue_id=0)
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        with contextlib.suppress(StoreClosedError):
            consumer.poll(timeout_s=30)

    thread = threading.Thread(target=wait)
    thread.start()
    assert waiting.wait(20)
    with pytest.raises(ConsumerBusyError, match="thread"):
        until_raised(consumer.poll)
    consumer.close()
    thread.join(30)
    assert not thread.is_alive()


def test_a_commit_that_a_close_overtakes_stores_nothing(setting: Setting) -> None:
    """The group may have another consumer by then, whose offsets it would set back."""
    setting.made.fill(30, queue_id=0)
    first = setting.consumer(group="billing")
    first.poll(5)
    waiting, go_on = threading.Event(), threading.Event()

    def flush(end: int) -> None:
        waiting.set()
        assert go_on.wait(20)

    first._stored._wait_flushed = flush
    heard: list[StoreClosedError] = []

    def commit() -> None:
        with pytest.raises(StoreClosedError, match="billing") as caught:
            first.commit()
        heard.append(caught.value)

    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    assert waiting.wait(20)
    first.close()
    with setting.consumer(group="billing") as second:
        second.poll(20)
        assert second.commit() == {0: 20}
        go_on.set()
        thread.join(20)
    assert len(heard) == 1
    assert setting.stored() == {0: 20}


def test_a_close_beside_a_call_leaves_its_messages_alone(setting: Setting) -> None:
    setting.made.fill(10, queue_id=0)
    consumer = setting.consumer()
    assert consumer._prefetch()
    with consumer._use():
        consumer.close()
        assert len(consumer._cursors.fetched()) == 10
    assert consumer.closed
    with setting.consumer() as other:
        assert other._prefetch()
    assert other._cursors.fetched() == []


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
