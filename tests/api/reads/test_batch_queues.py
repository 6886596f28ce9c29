"""Batch queues of RocketMQ 5: one record stands for several messages, which are read one by one."""

from __future__ import annotations

import pickle
import shutil
import zlib
from pathlib import Path

import pytest

import rocketstore
from rocketstore import (
    ConfigError,
    DecompressionError,
    MissingSegmentsError,
    OffsetOutOfRangeError,
)
from rocketstore.log.follow.follower import Follower
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.batch_queue import batch_directory, decode_unit
from tests.support.batch_store import FIRST_MS, TOPIC, BatchStore, Part, bodies, packed
from tests.support.live_writer import java_writer
from tests.support.made_store import vectors
from tests.support.small_store import everything, open_small


@pytest.fixture
def made(tmp_path: Path) -> BatchStore:
    made = BatchStore(tmp_path / "store")
    made.fill_batches(10)
    return made


def test_rocketmqs_unit() -> None:
    vector = vectors()["queue"]["batch_entry"]
    assert decode_unit(bytes.fromhex(vector["hex"])) == (7, 300, -1, 1_700_000_000_000, 20, 3)


def test_rocketmqs_record(tmp_path: Path) -> None:
    """The record of the vectors: a batch of three messages as it was sent."""
    (vector,) = [row for row in vectors()["records"] if row["id"] == "inner_batch"]
    made = BatchStore(tmp_path)
    made.base = 20
    body = bytes.fromhex(vector["fields"]["body"])
    made.put_batch([(b"", {})] * 3, body=body)
    with open_small(tmp_path, "r") as store:
        found = list(store.consumer(TOPIC))
    assert [message.queue_offset for message in found] == [20, 21, 22]
    assert [(m.body, m.flag, m.tags) for m in found] == [
        (b"one", 0, "x"),
        (b"", 1, None),
        (b"three", 2, "y"),
    ]


def test_messages_one_by_one(made: BatchStore) -> None:
    with open_small(made.root, "r") as store:
        assert store.topics() == ["orders", TOPIC]
        assert store.queues(TOPIC) == [0]
        assert (store.min_queue_offset(TOPIC, 0), store.max_queue_offset(TOPIC, 0)) == (
            0,
            made.base,
        )
        found = list(store.consumer(TOPIC))
        assert [message.body for message in found] == made.bodies
        assert [message.queue_offset for message in found] == list(range(made.base))
        at = 0
        for number, (record, parts) in enumerate(made.batches):
            for body, properties in parts:
                message = found[at]
                assert message.physical_offset == record.physical_offset
                assert (message.topic, message.queue_id, message.flag) == (TOPIC, 0, len(body))
                assert message.properties == properties
                assert message.tags == properties["TAGS"]
                assert message.store_timestamp_ms == FIRST_MS + 10 * number
                assert message.message_id == store.get(record.physical_offset).message_id
                assert message.sys_flag == 0
                assert pickle.loads(pickle.dumps(message)) == message
                at += 1
        assert len(everything(store)) == 10


def test_a_record_of_a_batch_as_it_lies_there(made: BatchStore) -> None:
    with open_small(made.root, "r") as store:
        for number, (record, parts) in enumerate(made.batches):
            (found,) = store.query(TOPIC, f"k{number}")
            assert found == store.get(record.physical_offset)
            assert found.body == packed(parts)
            assert found.sys_flag == 0xC0


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_any_offset_and_any_number_of_messages(most: int, made: BatchStore) -> None:
    with open_small(made.root, "r") as store:
        for begin in range(made.base + 1):
            with store.consumer(TOPIC, queue_id=0, offset=begin) as consumer:
                found = []
                while batch := consumer.poll(most):
                    assert len(batch) <= most
                    found += batch
                    assert consumer.positions == {0: batch[-1].queue_offset + 1}
            assert [m.queue_offset for m in found] == list(range(begin, made.base))
            assert [m.body for m in found] == made.bodies[begin:]
        with pytest.raises(OffsetOutOfRangeError):
            list(store.consumer(TOPIC, queue_id=0, offset=made.base + 1))


def test_tags_are_those_of_the_messages(made: BatchStore) -> None:
    with open_small(made.root, "r") as store:
        for tag in "abc":
            wanted = [b for _, parts in made.batches for b, p in parts if p["TAGS"] == tag]
            assert [m.body for m in store.consumer(TOPIC, tags=tag)] == wanted
        assert list(store.consumer(TOPIC, tags="other")) == []


def test_every_message_is_found_by_its_time(made: BatchStore) -> None:
    with open_small(made.root, "r") as store:
        base = 0
        for number, (_, parts) in enumerate(made.batches):
            when = FIRST_MS + 10 * number
            for early in (0, 1, 9):
                assert store.offset_at(TOPIC, 0, when - early) == base
            base += len(parts)
            for late in (0, 1, 9):
                assert store.offset_at(TOPIC, 0, when + late, "upper") == base - 1
        assert store.offset_at(TOPIC, 0, when + 1) == base
        assert store.offset_at(TOPIC, 0, FIRST_MS - 1, "upper") == -1


def test_beside_a_live_rocketmq(made: BatchStore) -> None:
    """New batches in new files of queue and log are followed; a half written unit is waited for."""
    layout = StoreLayout(made.root)
    layout.lock.touch()
    with java_writer(layout), open_small(made.root, "r") as store:
        consumer = store.consumer(TOPIC)
        assert [m.body for m in consumer] == made.bodies
        for _ in range(3):
            before = len(made.bodies)
            made.fill_batches(7)
            assert [m.body for m in consumer] == made.bodies[before:]
            assert store.max_queue_offset(TOPIC, 0) == made.base
        record = made.put_batch([(b"late", {})], unit=False)
        made.put_unit(record, 2, 0)
        assert list(consumer) == []
        made.put_unit(record, 1, 0, number=made._units - 1)
        assert [m.body for m in consumer] == [b"late"]


def test_a_log_that_was_trimmed(made: BatchStore) -> None:
    """Messages below the log's begin are gone; files of the queue may be."""
    made.fill_batches(40)
    files = sorted((made.root / "commitlog").iterdir())
    files[0].unlink()
    begin = int(files[1].name)
    wanted = [
        body
        for record, parts in made.batches
        for body, _ in parts
        if record.physical_offset >= begin
    ]
    assert 0 < len(wanted) < len(made.bodies)
    for _ in range(2):
        with open_small(made.root, "r") as store:
            assert store.min_queue_offset(TOPIC, 0) == made.base - len(wanted)
            assert bodies(store) == wanted
            with pytest.raises(OffsetOutOfRangeError):
                list(store.consumer(TOPIC, queue_id=0, offset=0))
        first = batch_directory(StoreLayout(made.root), TOPIC, 0) / f"{0:020d}"
        first.unlink(missing_ok=True)


def test_a_log_that_is_trimmed_within_a_read(
    made: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads hears that messages are gone: neither of damage, nor nothing."""
    made.fill_batches(40)
    first = min((made.root / "commitlog").iterdir())
    real = Follower.visible

    def trim_first(self: Follower) -> int:
        monkeypatch.setattr(Follower, "visible", real)
        first.unlink()
        self._log.list()
        self._move()
        return real(self)

    layout = StoreLayout(made.root)
    layout.lock.touch()
    with java_writer(layout), open_small(made.root, "r") as store:
        consumer = store.consumer(TOPIC, queue_id=0)
        assert len(consumer.poll(1)) == 1
        monkeypatch.setattr(Follower, "visible", trim_first)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll()
        assert not first.exists()
        assert store.min_queue_offset(TOPIC, 0) > 1


def test_what_a_crash_left_without_a_unit(made: BatchStore) -> None:
    """As RocketMQ's recovery would: units of the last batches are made, in memory."""
    made.put_batch([(b"x", {}), (b"y", {})], unit=False)
    made.put(TOPIC, body=b"single", queue_offset=made.base)  # RocketMQ makes no unit of it
    made.base += 1
    made.put_batch([(b"z", {})], unit=False)
    (made.root / "abort").touch()
    with open_small(made.root, "r") as store:
        assert bodies(store) == made.bodies
        offsets = [message.queue_offset for message in store.consumer(TOPIC)]
        assert offsets == [*range(made.base - 2), made.base - 1]
        assert store.max_queue_offset(TOPIC, 0) == made.base
    assert len(list(batch_directory(StoreLayout(made.root), TOPIC, 0).iterdir())) == 3


def test_units_beyond_the_log_are_not_believed(made: BatchStore) -> None:
    """After a power cut the queue may know more than the log."""
    record = made.put_batch([(b"x", {}), (b"y", {})])
    made.write_log(record.physical_offset, bytes(record.size))
    (made.root / "abort").touch()
    with open_small(made.root, "r") as store:
        assert bodies(store) == made.bodies[:-2]
        assert store.max_queue_offset(TOPIC, 0) == made.base - 2


def test_a_log_without_its_last_files(made: BatchStore, caplog: pytest.LogCaptureFixture) -> None:
    """Batch queues tell it as well as others."""
    made.fill_batches(40)
    made.put_batch([(b"x" * 3000, {})])
    made.put_batch([(b"x" * 3000, {})])
    files = sorted((made.root / "commitlog").iterdir())
    files[-1].unlink()
    with pytest.raises(MissingSegmentsError, match="the queues point up to"):
        open_small(made.root, "r")
    with open_small(made.root, "r", force=True) as store:
        assert f"the queues point up to {made.end}" in str(store.recovery.missing)
        assert bodies(store) == made.bodies[:-1]
    assert "segments of the commit log are missing" in caplog.text


def test_compressed_batches(tmp_path: Path) -> None:
    made = BatchStore(tmp_path)
    parts: list[Part] = [(b"one", {"TAGS": "a"}), (b"two", {})]
    made.put_batch(parts, sys_flag=0x301, body=zlib.compress(packed(parts)))
    made.put_batch(parts, sys_flag=0x301)
    with open_small(tmp_path, "r") as store:
        consumer = store.consumer(TOPIC)
        found = consumer.poll()
        assert [(m.body, m.sys_flag) for m in found] == [(b"one", 0), (b"two", 0)]
        assert rocketstore.decompress(found[0]) == b"one"
        with pytest.raises(DecompressionError):
            list(consumer)


@pytest.mark.parametrize("mode", ["rw", "r+"])
def test_batch_queues_are_not_written(mode: rocketstore.Mode, made: BatchStore) -> None:
    """A plain queue beside one would keep RocketMQ from loading the store."""
    before = sorted(made.root.rglob("*"))
    with pytest.raises(ConfigError, match=r"batch queues \(packed\)"):
        rocketstore.open(made.root, mode)
    assert sorted(made.root.rglob("*")) == before


def test_a_directory_without_batch_queues(made: BatchStore) -> None:
    shutil.rmtree(made.root / "batchconsumequeue" / TOPIC)
    with rocketstore.open(made.root, "rw") as store:
        assert TOPIC in store.topics(system=True)
