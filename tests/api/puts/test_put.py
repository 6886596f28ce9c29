"""Putting one message: what it returns, what stands in the log, what a reader gets."""

from __future__ import annotations

import datetime
import struct
import threading
import time
import zlib
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.format import codec
from tests.support.small_store import (
    SEGMENT,
    STILL,
    dispatched,
    everything,
    log_bytes,
    open_small,
    parts,
    until,
)

PROMISES = ["disk", "os", "memory"]


@pytest.mark.parametrize("durability", PROMISES)
def test_a_store_lives_in_one_process(tmp_path: Path, durability: str) -> None:
    """S003-01 S003-06 S003-07: made, opened, used, closed and opened again."""
    with open_small(tmp_path / "s", durability=durability) as store:
        store.writer("orders").put(b"one")
    with open_small(tmp_path / "s", "r+", durability=durability) as store:
        store.writer("orders").put(b"two")
        store.wait_flushed(store.end_offset)
        assert [m.body for m in everything(dispatched(store))] == [b"one", b"two"]


def test_put_message_is_one_call(tmp_path: Path) -> None:
    """S003-08: the façade takes every field and stores one message."""
    with open_small(tmp_path) as store:
        result = store.put_message(
            "orders",
            b"body",
            queue_id=3,
            properties={"TAGS": "paid", "KEYS": "a b", "own": "1"},
            flag=7,
            reconsume_times=2,
            born_host="10.0.0.1:99",
        )
        message = store.get(result.physical_offset)
    assert (message.topic, message.queue_id, message.body, message.flag) == (
        "orders",
        3,
        b"body",
        7,
    )
    assert (message.tags, message.keys, message.reconsume_times) == ("paid", ("a", "b"), 2)
    assert message.properties == {"TAGS": "paid", "KEYS": "a b", "own": "1"}
    assert message.born_host == "10.0.0.1:99"


def test_store_time_and_body_crc_come_from_the_put(tmp_path: Path) -> None:
    """S000-21 S003-26: the time lies between before and after; the CRC is the body's, top bit off."""
    with open_small(tmp_path) as store:
        before = time.time_ns() // 1_000_000
        result = store.writer("orders").put(b"what is summed")
        after = time.time_ns() // 1_000_000
        record = bytes(store.get(result.physical_offset))
    assert before <= result.store_timestamp_ms <= after
    assert struct.unpack_from(">i", record, 8)[0] == zlib.crc32(b"what is summed") & 0x7FFFFFFF


def test_a_put_that_returns_is_ok(store: rocketstore.Store) -> None:
    """S000-33 S001-65: no status to look at: it is stored and as durable as the store promises."""
    result = store.writer("orders").put(b"x")
    assert result.durability == "disk"
    assert store.flushed_offset >= result.end_offset


def test_the_result_says_where_the_message_went(tmp_path: Path) -> None:
    """S000-77 S004-69 S004-70: offset, size, id, store time, queue offset, count."""
    with open_small(tmp_path, store_host="1.2.3.4:10911") as store:
        writer = store.writer("orders", queue_id=5)
        first, second = writer.put(b"a" * 10), writer.put(b"b" * 20)
        message = store.get(second.physical_offset)
    assert first.physical_offset == 0
    assert second.physical_offset == first.end_offset == first.size
    assert (second.queue_id, second.queue_offset, second.count) == (5, 1, 1)
    assert second.size == message.size == second.end_offset - second.physical_offset
    assert second.store_timestamp_ms == message.store_timestamp_ms
    assert second.message_id == message.message_id
    assert second.message_id == "0102030400002A9F" + f"{second.physical_offset:016X}"


def test_queue_offset_is_a_running_number(store: rocketstore.Store) -> None:
    """S001-08 S003-13: 0, 1, 2 … in each queue that the sender chose, whatever the sizes."""
    writers = [store.writer("orders", queue_id=n) for n in (0, 7)]
    offsets = [writers[i % 2].put(b"x" * i * 9).queue_offset for i in range(10)]
    assert offsets == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert store.queues("orders") == [0, 7]


def test_unit_stands_at_queue_offset_times_20(tmp_path: Path) -> None:
    """S001-09: the queue offset is the place of the unit in the queue's files."""
    with open_small(tmp_path, consume_queue_file_size_bytes=2000) as store:
        writer = store.writer("orders")
        results = [writer.put(b"x", tags="paid") for _ in range(5)]
        dispatched(store)
        unit = (tmp_path / "consumequeue/orders/0/00000000000000000000").read_bytes()[60:80]
    expected = (results[3].physical_offset, results[3].size, codec.tags_code("paid"))
    assert struct.unpack(">qiq", unit) == expected


def test_wrote_moves_by_the_size_of_the_record(
    store: rocketstore.Store, writer: rocketstore.Writer
) -> None:
    """S000-64 S001-79: the end of the log and its store time follow each append."""
    for size in (0, 1, 100):
        before = store.end_offset
        result = writer.put(b"x" * size)
        assert store.end_offset == before + result.size == result.end_offset
        end, last_start, store_time = parts(store).commit_log.log.snapshot()
        assert (end, last_start) == (result.end_offset, result.physical_offset)
        assert store_time == result.store_timestamp_ms


def test_the_last_store_time_is_remembered(tmp_path: Path) -> None:
    """S000-65 S004-16: a clock that stepped back does not make store times fall, not even later."""
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"x")
        last = parts(store).commit_log.log.snapshot()[2]
    with open_small(tmp_path) as store:
        assert store.recovery.last_store_timestamp_ms == last
        assert store.writer("orders").put(b"y").store_timestamp_ms >= last


@pytest.mark.parametrize("durability", ["os", "memory"])
def test_threads_share_one_log(
    tmp_path: Path, durability: str, small_switch_interval: None
) -> None:
    """S000-28 S004-19: appends are serialised: no gap, no overlap, queue offsets in log order."""
    results: list[list[rocketstore.PutResult]] = [[] for _ in range(4)]
    with open_small(tmp_path, durability=durability) as store:

        def put(number: int) -> None:
            writer = store.writer("orders", queue_id=number % 2)
            for i in range(50):
                results[number].append(writer.put(b"%d-%d" % (number, i)))

        threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.wait_flushed(store.end_offset)
        bodies = {m.physical_offset: m.body for m in everything(dispatched(store))}
    flat = sorted((r.physical_offset, r) for rs in results for r in rs)
    end = 0
    for offset, result in flat:
        assert offset in (end, -(-end // SEGMENT) * SEGMENT)
        end = result.end_offset
    for queue_id in (0, 1):
        assert [r.queue_offset for _, r in flat if r.queue_id == queue_id] == list(range(100))
    for number, rs in enumerate(results):
        assert [bodies[r.physical_offset] for r in rs] == [
            b"%d-%d" % (number, i) for i in range(50)
        ]


@pytest.mark.parametrize("body", ["text", 17, None, ["list"]])
def test_a_body_that_is_not_bytes_is_refused(body: object, store: rocketstore.Store) -> None:
    """S004-61: unknown kinds of message change nothing."""
    with pytest.raises(TypeError):
        store.writer("orders").put(body)
    assert store.end_offset == 0


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_bodies_are_bytes_like(make: type, store: rocketstore.Store) -> None:
    result = store.writer("orders").put(make(b"body"))
    assert store.get(result.physical_offset).body == b"body"


def test_the_message_stands_in_the_file_of_the_log(
    tmp_path: Path, store: rocketstore.Store
) -> None:
    """S003-25: what a reader gets is the bytes of the file, nothing is kept elsewhere."""
    result = store.writer("orders").put(b"entity", keys="k")
    record = bytes(store.get(result.physical_offset))
    assert log_bytes(tmp_path)[result.physical_offset : result.end_offset] == record


@pytest.mark.store(store_host="1.2.3.4:5")
def test_the_record_is_whole_and_nothing_else_is_touched(
    tmp_path: Path, store: rocketstore.Store
) -> None:
    """S000-76 S001-76 S003-37: record as the codec makes it, zeros behind it."""
    born = 1_700_000_000_123
    result = store.put_message(
        "orders", b"body", properties={"a": "b"}, born_time=_time(born), born_host="9.8.7.6:5"
    )
    assert log_bytes(tmp_path)[result.end_offset :].strip(b"\0") == b""
    assert log_bytes(tmp_path)[: result.end_offset] == codec.encode_record(
        topic="orders",
        body=b"body",
        properties=codec.encode_properties({"a": "b"}),
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        born_timestamp_ms=born,
        born_host="9.8.7.6:5",
        store_timestamp_ms=result.store_timestamp_ms,
        store_host="1.2.3.4:5",
        record_crc=True,
    )


def _time(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


@pytest.mark.parametrize("durability", PROMISES)
def test_every_way_to_the_file_makes_the_same_record(tmp_path: Path, durability: str) -> None:
    """S003-36 S004-60 S000-63: ring, mapping or pool buffer: the appender does not care which."""
    with open_small(tmp_path, durability=durability) as store:
        results = [store.writer("orders").put(b"x" * 500, tags="t") for _ in range(12)]
        store.wait_flushed(store.end_offset)
        data = log_bytes(tmp_path)
        for result in results:
            message = store.get(result.physical_offset)
            assert data[result.physical_offset : result.end_offset] == bytes(message)
            assert (message.body, message.tags) == (b"x" * 500, "t")
    assert [r.physical_offset // SEGMENT for r in results][-1] >= 1


@pytest.mark.parametrize("sys_flag", [4, 12])
def test_prepared_and_rollback_never_enter_a_queue(sys_flag: int, store: rocketstore.Store) -> None:
    """S003-14 S004-65: queue offset 0, no unit, and the queue's next offset stays."""
    store.writer("orders").put(b"before")
    hidden = store.put_message("orders", b"hidden", sys_flag=sys_flag)
    after = store.writer("orders").put(b"after")
    assert (hidden.queue_offset, after.queue_offset) == (0, 1)
    assert [m.body for m in everything(dispatched(store))] == [b"before", b"after"]
    assert store.get(hidden.physical_offset).sys_flag & 12 == sys_flag


def test_put_writes_to_the_last_file(store: rocketstore.Store) -> None:
    """S000-27 S004-03 S004-18: the last file of the queue, full, partly filled or just made."""
    log = parts(store).commit_log
    for _ in range(20):
        result = store.writer("orders").put(b"x" * 600)
        file = log.queue.find(result.physical_offset)
        assert file is log.queue.last
        assert file.start_offset <= result.physical_offset < file.end_offset


@pytest.mark.store(**STILL, durability="os")
def test_a_put_of_an_os_store_is_in_the_file_before_any_flush(
    tmp_path: Path, store: rocketstore.Store
) -> None:
    """S001-46 S004-06: it is copied into the mapping: another process reads it, a flush comes later."""
    result = store.writer("orders").put(b"in the page cache")
    assert b"in the page cache" in log_bytes(tmp_path)
    assert store.flushed_offset == 0 < result.end_offset


@pytest.mark.store(max_message_size_bytes=100)
def test_refusals_leave_the_log_usable(
    store: rocketstore.Store, writer: rocketstore.Writer
) -> None:
    """S000-38: whatever a put ended with, the next one goes on at the same place."""
    writer.put(b"one")
    end = store.end_offset
    for body in (b"x" * 101, "text"):
        with pytest.raises((rocketstore.MessageTooLargeError, TypeError)):
            writer.put(body)
    with pytest.raises(rocketstore.PropertiesTooLargeError):
        writer.put(b"", properties={"a": "x" * 40_000})
    result = writer.put(b"two")
    assert (result.physical_offset, result.queue_offset) == (end, 1)


def test_the_sender_says_which_shard(store: rocketstore.Store) -> None:
    """One shard key always goes to one queue; without one, queues take turns."""
    writer = store.writer("orders", queues=3)
    assert len({writer.put(b"x", shard_key="anna").queue_id for _ in range(5)}) == 1
    assert {writer.put(b"x").queue_id for _ in range(6)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("key", "queue_id"),
    [("anna", 4), ("order-1", 6), ("Zürich", 2), ("polygenelubricants", 2)],
)
def test_a_shard_key_has_the_queue_that_rocketmq_gives_it(
    tmp_path: Path, key: str, queue_id: int
) -> None:
    """SelectMessageQueueByHash: Math.abs(key.hashCode() % 7); three of these hashes are negative."""
    with open_small(tmp_path) as store:
        writer = store.writer("orders", queues=7)
        assert writer.put(b"x", shard_key=key).queue_id == queue_id
        assert writer.put_batch([b"x", b"y"], shard_key=key).queue_id == queue_id
    assert rocketstore.shard_queue_id(key, 7) == queue_id


@pytest.mark.store(**STILL, durability="os")
def test_two_parts_append_and_flush(store: rocketstore.Store) -> None:
    """S003-35: the append has its place at once, the promise is a wait of its own."""
    result = store.writer("orders").put(b"x", durability="os")
    assert store.flushed_offset == 0
    store.wait_flushed(result.end_offset)
    until(store, lambda: store.flushed_offset == result.end_offset)
