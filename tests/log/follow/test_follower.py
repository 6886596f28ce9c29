"""Following a store that another process writes: whom it believes, how far, and what wakes it."""

from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path

import pytest

from rocketstore.consumer import Consumer
from rocketstore.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    StoreClosedError,
    StoreReplacedError,
)
from rocketstore.log.follow import follower
from rocketstore.log.follow.follower import Follower
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.reader import Reader
from tests.support.forking import fork
from tests.support.live_writer import LiveWriter, java_writer
from tests.support.made_store import UNIT_SIZE, rocketmq_store, write_at


def offsets_of(consumer: Consumer) -> list[int]:
    return [message.queue_offset for message in consumer]


def test_a_live_writer_is_believed(live: LiveWriter, source: Follower) -> None:
    assert source.writer == "live"


def test_only_what_the_writer_has_dispatched_is_seen(live: LiveWriter, source: Follower) -> None:
    records = live.made.fill(10)
    live.move(records[6].physical_offset + records[6].size)
    consumer = Consumer(Reader(source), "orders", queue_id=0)
    assert offsets_of(consumer) == [0, 1, 2, 3, 4, 5, 6]
    live.move(live.made.end)
    assert offsets_of(consumer) == [7, 8, 9]


def test_nothing_beyond_the_visible_end_is_readable(live: LiveWriter, source: Follower) -> None:
    """D-32, by physical offset too."""
    records = live.made.fill(10)
    live.move(records[6].physical_offset)
    source.catch_up()
    reader = Reader(source)
    assert reader.get(records[5].physical_offset).queue_offset == 5
    with pytest.raises(OffsetOutOfRangeError):
        reader.get(records[6].physical_offset)


def test_new_segments_and_queue_files_are_found(live: LiveWriter, source: Follower) -> None:
    consumer = Consumer(Reader(source), "orders", queue_id=0)
    for step in range(20):
        live.fill(7)
        assert offsets_of(consumer) == list(range(7 * step, 7 * step + 7))
    assert len(source.segments()) > 3


def test_new_queues_and_topics_are_found(live: LiveWriter, source: Follower) -> None:
    assert source.topics() == ()
    live.fill(1, queue_id=3)
    assert source.topics() == ("orders",)
    assert source.queues("orders") == (3,)


def test_a_wait_ends_when_the_writer_moves(
    live: LiveWriter, source: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No wait looks by itself before the poll gives up: the futex wakes it, or nothing does.
    monkeypatch.setattr(follower, "BELIEF_MS", 60_000)
    monkeypatch.setattr("rocketstore.consumer.LONGEST_WAIT_MS", 60_000)
    consumer = Consumer(Reader(source), "orders", queue_id=0)
    timer = threading.Timer(0.05, live.fill, (1,))
    before = time.monotonic()
    timer.start()
    assert len(consumer.poll(timeout_s=60)) == 1
    assert time.monotonic() - before < 50
    timer.join()


def test_a_wait_is_over_in_time_when_nothing_moves(live: LiveWriter, source: Follower) -> None:
    before = time.monotonic()
    seen = source.arrival.count
    source.arrival.wait(seen, 30)
    assert time.monotonic() - before < 5


def test_a_unit_that_is_half_written_is_not_taken(live: LiveWriter, source: Follower) -> None:
    """Its size can be seen before its physical offset: it then points to record 0."""
    live.fill(1, queue_id=1)
    live.move(live.made.end)
    path = live.layout.queue_directory("orders", 0) / f"{0:020d}"
    path.parent.mkdir(parents=True)
    write_at(path, 0, struct.pack(">qiq", 0, 100, 0), 10 * UNIT_SIZE)
    live.move(live.made.end)
    reader = Reader(source)
    assert reader.fetch("orders", 0, 0, 1).status == "NO_MESSAGE_IN_QUEUE"
    live.fill(1, queue_id=0)
    assert reader.fetch("orders", 0, 0, 1).messages[0].queue_id == 0


def test_units_of_records_beyond_are_not_taken(live: LiveWriter, source: Follower) -> None:
    """The dispatcher is ahead of what it has published."""
    live.made.fill(5)
    reader = Reader(source)
    assert reader.bounds("orders", 0) == (0, 0)
    live.move(live.made.end)
    assert reader.bounds("orders", 0) == (0, 5)


def test_retention_moves_the_minimum(live: LiveWriter, source: Follower) -> None:
    records = live.fill(100)
    reader = Reader(source)
    assert reader.bounds("orders", 0) == (0, 100)
    kept = next(r for r in records if r.physical_offset >= 2 * live.made.segment_size)
    message = reader.get(0)
    live.move(live.made.end, minimum=2 * live.made.segment_size)
    for start in (0, live.made.segment_size):
        (live.layout.commit_log / f"{start:020d}").unlink()
    for number in range(kept.queue_offset // 10):
        (live.layout.queue_directory("orders", 0) / f"{number * 200:020d}").unlink()
    assert reader.bounds("orders", 0) == (kept.queue_offset, 100)
    assert reader.fetch("orders", 0, 0, 1).status == "OFFSET_TOO_SMALL"
    with pytest.raises(OffsetOutOfRangeError):
        reader.get(0)
    assert source.segments()[0].start_offset == 2 * live.made.segment_size
    assert message.body == records[0].body


@pytest.mark.parametrize("grown", [0, 5, 30])
def test_a_new_run_that_cut_what_was_shown(live: LiveWriter, source: Follower, grown: int) -> None:
    """D-30: once the log had grown again, the reader went on behind messages that it never saw."""
    records = live.fill(20)
    consumer = Consumer(Reader(source), "orders", queue_id=0)
    assert len(list(consumer)) == 20
    live.die()
    cut = records[12].physical_offset
    live.made.write_log(cut, b"\0" * (live.made.segment_size - cut % live.made.segment_size))
    for number in range(12, 20):
        live.made.write_unit("orders", 0, number, b"\0" * UNIT_SIZE)
    live.made.end = cut
    if grown:
        live.made._next["orders", 0] = 12
        live.made.fill(grown)
    live.start()
    with pytest.raises(StoreReplacedError, match="the log ends at|other records below"):
        consumer.poll()


def test_files_that_a_new_run_made_again_are_read_anew(live: LiveWriter, source: Follower) -> None:
    live.fill(60)
    reader = Reader(source)
    assert reader.bounds("orders", 0) == (0, 60)
    live.die()
    live.make_again("orders")
    again = live.made.fill(4)
    live.start()
    assert reader.bounds("orders", 0) == (0, 64)
    assert reader.get(again[3].physical_offset).body == again[3].body


def test_a_writer_that_recovers_shows_nothing_new(live: LiveWriter, source: Follower) -> None:
    live.fill(5)
    consumer = Consumer(Reader(source), "orders", queue_id=0)
    consumer.poll(2)
    live.page.begin()
    live.made.fill(5)
    live.move(live.made.end)
    assert offsets_of(consumer) == [2, 3, 4]
    assert source.writer == "recovering"
    live.page.go_live()
    assert offsets_of(consumer) == [5, 6, 7, 8, 9]


def test_a_page_of_another_boot_is_not_believed(live: LiveWriter, source: Follower) -> None:
    live.page.positions.boot_id = b"x" * 16
    source.catch_up()
    assert source.writer == "recovering"


def test_a_writer_that_was_killed_is_noticed(live: LiveWriter, source: Follower) -> None:
    """The page still says live; the lock does not."""
    live.fill(5)
    consumer = Consumer(Reader(source), "orders", queue_id=0)
    consumer.poll(2)
    live.die()
    assert offsets_of(consumer) == [2, 3, 4]
    assert source.writer == "none"


def test_what_a_killed_writer_left_is_read_as_far_as_it_holds(
    live: LiveWriter, source: Follower
) -> None:
    live.fill(5)
    live.made.fill(3)
    live.made.write_unit("orders", 0, 8, struct.pack(">qiq", live.made.end, 100, 0))
    live.die()
    assert offsets_of(Consumer(Reader(source), "orders", queue_id=0)) == list(range(8))


def test_a_reader_outlives_its_writer_and_meets_the_next(
    live: LiveWriter, source: Follower
) -> None:
    live.fill(5)
    consumer = Consumer(Reader(source), "orders", queue_id=0)
    assert offsets_of(consumer) == [0, 1, 2, 3, 4]
    live.stop()
    assert offsets_of(consumer) == []
    assert source.writer == "none"
    live.start()
    live.fill(2)
    assert offsets_of(consumer) == [5, 6]
    assert source.writer == "live"


def test_beside_rocketmq_the_files_are_followed(live: LiveWriter, source: Follower) -> None:
    """D-30: a lock with a process id is Java's, whatever the page says."""
    live.die()
    with java_writer(live.layout):
        consumer = Consumer(Reader(source), "orders", queue_id=0)
        assert offsets_of(consumer) == []
        assert source.writer == "java"
        for step in range(10):
            live.made.fill(5)
            assert offsets_of(consumer) == list(range(5 * step, 5 * step + 5))
        timer = threading.Timer(0.05, live.made.fill, (1,))
        timer.start()
        assert len(consumer.poll(timeout_s=30)) == 1
        timer.join()


def test_beside_rocketmq_the_end_is_that_of_the_last_record(
    live: LiveWriter, source: Follower
) -> None:
    """Nobody says where the log ends: not where the segments do, which are made ahead."""
    live.die()
    with java_writer(live.layout):
        source.catch_up()
        assert source.end() == 0
        for _ in range(20):
            live.made.fill(7)
            source.catch_up()
            assert source.end() == live.made.end
        assert live.made.end > 2 * source.segment_size
        damaged = live.made.records[-3].physical_offset
        live.made.write_log(damaged, b"\xff" * 8)
        live.made.fill(1)
        again = Follower(live.layout, verify=3)
        assert again.end() == live.made.end
        again.close()


def test_units_that_rocketmq_left_behind_are_not_taken(live: LiveWriter, source: Follower) -> None:
    """A cut leaves old units behind the end that look good (format 15.4)."""
    live.made.fill(5)
    live.die()
    for number in range(5, 10):
        unit = struct.pack(">qiq", live.made.end + 90 * number, 90, 0)
        live.made.write_unit("orders", 0, number, unit)
    with java_writer(live.layout):
        consumer = Consumer(Reader(source), "orders", queue_id=0)
        assert offsets_of(consumer) == [0, 1, 2, 3, 4]
        live.made.fill(2)
        assert offsets_of(consumer) == [5, 6]


def test_a_queue_file_that_was_rebuilt_is_taken_over(
    live: LiveWriter, source: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A degraded queue is rebuilt into a new file under the same name."""
    monkeypatch.setattr("rocketstore.log.follow.queue_files.RECHECK_S", -1.0)
    live.fill(3)
    consumer = Consumer(Reader(source), "orders", queue_id=0)
    assert len(list(consumer)) == 3
    path = live.layout.queue_directory("orders", 0) / f"{0:020d}"
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    live.fill(2)
    assert offsets_of(consumer) == [3, 4]


def test_following_changes_nothing(live: LiveWriter, source: Follower) -> None:
    live.fill(30)
    before = {path: path.stat().st_mtime_ns for path in live.layout.root.rglob("*")}
    list(Consumer(Reader(source), "orders"))
    assert {path: path.stat().st_mtime_ns for path in live.layout.root.rglob("*")} == before


def test_a_store_that_is_not_there_yet_can_be_followed(root: Path) -> None:
    follower = Follower(StoreLayout(root), verify=3)
    consumer = Consumer(Reader(follower), "orders")
    assert list(consumer) == []
    live = LiveWriter(root)
    live.fill(3)
    assert offsets_of(consumer) == [0, 1, 2]
    assert follower.writer == "live"
    follower.close()
    live.close()


def test_many_threads_may_read_through_one_follower(live: LiveWriter, source: Follower) -> None:
    found: list[list[int]] = []

    def read() -> None:
        consumer = Consumer(Reader(source), "orders", queue_id=0)
        seen: list[int] = []
        while len(seen) < 300:
            seen += [message.queue_offset for message in consumer.poll(timeout_s=10)]
        found.append(seen)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        live.fill(3)
    for thread in threads:
        thread.join(60)
    assert found == [list(range(300))] * 4


def test_a_forked_child_does_not_share_the_store(live: LiveWriter, source: Follower) -> None:
    live.fill(1)
    child = fork()
    if child == 0:
        try:
            source.check()
        except StoreClosedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    source.check()


def test_after_close_nothing_is_read(live: LiveWriter, source: Follower) -> None:
    source.close()
    source.close()
    for call in (source.check, source.topics, source.catch_up, lambda: Reader(source).get(0)):
        with pytest.raises(StoreClosedError):
            call()


def test_a_damaged_store_of_rocketmq_is_read_around_the_damage(tmp_path: Path) -> None:
    """One body bit is wrong in the first file: RocketMQ cuts all behind it, we step over it."""
    root, expected = rocketmq_store("damaged-533", tmp_path)
    follower = Follower(StoreLayout(root), verify=3)
    reader = Reader(follower)
    served: list[int] = []
    refused: list[int] = []
    for topic in follower.topics():
        for queue_id in follower.queues(topic):
            for offset in range(*reader.bounds(topic, queue_id)):
                try:
                    found = reader.fetch(topic, queue_id, offset, 1)
                except CorruptRecordError as error:
                    refused.append(error.physical_offset)
                else:
                    served += [message.physical_offset for message in found.messages]
    follower.close()
    assert refused == expected["must_not"]["damaged"]
    assert sorted(served) == sorted([row[3] for row in expected["must"]["slots"]] + expected["may"])
