"""Batch queues of RocketMQ 5: one record stands for several messages, which are read one by one."""

from __future__ import annotations

import pickle
import shutil
import struct
import zlib
from pathlib import Path

import pytest

import rocketstore
from rocketstore import ConfigError, CorruptRecordError, DecompressionError, OffsetOutOfRangeError
from rocketstore._native.codec import encode_properties, tags_code
from rocketstore.log.batch_queue import decode_unit
from rocketstore.log.layout import StoreLayout
from rocketstore.log.other_queues import batch_directory
from rocketstore.tools import verify
from tests.live_writer import java_writer
from tests.made_store import MadeStore, Record, vectors, write_at
from tests.small_store import everything, open_small

TOPIC = "packed"
#: Four units in a file, and some bytes that hold none.
FILE = 4 * 46 + 10
FIRST_MS = 1_700_000_000_000
UNIT = struct.Struct(">qiqqqhii")
Part = tuple[bytes, dict[str, str]]


def packed(parts: list[Part]) -> bytes:
    """Messages of a batch as their producer packs them; the flag of each is the size of its body."""
    data = b""
    for body, properties in parts:
        text = encode_properties(properties)
        size = 22 + len(body) + len(text)
        data += struct.pack(">5i", size, 0, 0, len(body), len(body)) + body
        data += struct.pack(">h", len(text)) + text
    return data


class BatchStore(MadeStore):
    """A store with a batch queue, beside a plain one."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.base = 0
        self.batches: list[tuple[Record, list[Part]]] = []
        self._units = 0

    def put_batch(
        self,
        parts: list[Part],
        *,
        tags: str = "",
        unit: bool = True,
        sys_flag: int = 0,
        body: bytes = b"",
    ) -> Record:
        number = len(self.batches)
        record = self.put(
            TOPIC,
            body=body or packed(parts),
            tags=tags,
            keys=[f"k{number}"],
            properties={"INNER_NUM": str(len(parts)), "INNER_BASE": str(self.base)},
            sys_flag=0xC0 | sys_flag,
            queue_offset=self.base,
            store_ms=FIRST_MS + 10 * number,
        )
        if unit:
            self.put_unit(record, len(parts), FIRST_MS + 10 * number)
        self.batches.append((record, parts))
        self.base += len(parts)
        return record

    def put_unit(
        self, record: Record, count: int, store_ms: int, number: int | None = None
    ) -> None:
        number = self._units if number is None else number
        self._units = max(self._units, number + 1)
        fields = (record.physical_offset, record.size, tags_code(record.tags), store_ms)
        unit = UNIT.pack(*fields, record.queue_offset, count, -1, 0)
        directory = batch_directory(StoreLayout(self.root), TOPIC, 0)
        directory.mkdir(parents=True, exist_ok=True)
        write_at(directory / f"{number // 4 * FILE:020d}", number % 4 * 46, unit, FILE)

    def fill_batches(self, count: int) -> None:
        """Batches of one to four messages, and a plain message behind each."""
        for number in range(count):
            parts = [
                (b"%d-%d" % (number, part), {"TAGS": "abc"[part % 3], "n": str(part)})
                for part in range(number % 4 + 1)
            ]
            self.put_batch(parts, tags="a")
            self.put()
            self._dispatched += 1
            self.dispatch()

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, parts in self.batches for body, _ in parts]


@pytest.fixture
def made(tmp_path: Path) -> BatchStore:
    made = BatchStore(tmp_path / "store")
    made.fill_batches(10)
    return made


def bodies(store: rocketstore.Store) -> list[bytes]:
    return [message.body for message in store.consumer(TOPIC)]


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
    with open_small(made.root, "r") as store:
        assert f"the queues point up to {made.end}" in str(store.recovery.notes)
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


@pytest.mark.parametrize(
    "body",
    [
        packed([(b"one", {})]),
        packed([(b"one", {})] * 3),
        packed([(b"one", {}), (b"two", {})])[:-1],
        packed([(b"one", {})]) + bytes(5),
        struct.pack(">5ih", 0, 0, 0, 0, -1, 0) * 2,
        struct.pack(">5ih", 0, 0, 0, 0, 1 << 30, 0) * 2,
        struct.pack(">5ih", 0, 0, 0, 0, 0, -1) * 2,
        struct.pack(">5ih", 0, 0, 0, 0, 0, 32767) * 2,
    ],
)
def test_a_body_that_is_no_batch(body: bytes, tmp_path: Path) -> None:
    """It is an error when its turn comes, and can be stepped over."""
    made = BatchStore(tmp_path)
    made.put_batch([(b"front", {})])
    bad = made.put_batch([(b"", {})] * 2, body=body)
    made.put_batch([(b"behind", {})])
    with open_small(tmp_path, "r") as store, store.consumer(TOPIC, queue_id=0) as consumer:
        assert [m.body for m in consumer.poll()] == [b"front"]
        with pytest.raises(CorruptRecordError, match="batch") as caught:
            consumer.poll()
        assert caught.value.physical_offset == bad.physical_offset
        assert "seek(3)" in str(caught.value.__notes__)
        consumer.seek(3, queue_id=0)
        assert [m.body for m in consumer.poll()] == [b"behind"]
        assert store.get(bad.physical_offset).body == body


def test_units_that_are_not_those_of_their_records(made: BatchStore) -> None:
    assert verify(made.root).ok
    record, parts = made.batches[4]
    made.put_unit(record, len(parts) + 1, 0, number=4)
    with open_small(made.root, "r") as store, store.consumer(TOPIC, queue_id=0) as consumer:
        assert [m.body for m in consumer.poll()] == made.bodies[: record.queue_offset]
        with pytest.raises(CorruptRecordError, match="unit"):
            consumer.poll()
    (fault,) = verify(made.root).faults
    assert (fault.position, fault.file[-20:]) == (0, f"{FILE:020d}")
    assert "messages" in fault.reason


def test_any_flipped_byte_of_a_queue(made: BatchStore) -> None:
    """Whatever stands in a unit, a consumer ends, with messages of the log or an error that says where."""
    file = batch_directory(StoreLayout(made.root), TOPIC, 0) / f"{0:020d}"
    whole = file.read_bytes()
    for at in range(46, 92):
        write_at(file, at, bytes([whole[at] ^ 0x81]))
        with open_small(made.root, "r") as store:
            try:
                found = [message.body for message in store.consumer(TOPIC)]
            except CorruptRecordError:
                found = []
            assert set(found) <= set(made.bodies)
            times = [FIRST_MS + 10 * n for n in range(10)]
            assert all(store.offset_at(TOPIC, 0, when) >= 0 for when in times)
        write_at(file, at, whole[at : at + 1])


def test_units_in_the_wrong_order(tmp_path: Path) -> None:
    """Records whose queue offsets fall: a consumer ends all the same."""
    made = BatchStore(tmp_path)
    for base in (10, 4, 5, 11, 3, 12):
        made.base = base
        made.put_batch([(b"%d" % base, {})])
    with open_small(tmp_path, "r") as store:
        for offset in range(3, 14):
            with store.consumer(TOPIC, queue_id=0, offset=offset, reset="earliest") as consumer:
                assert {m.body for m in consumer} <= set(made.bodies)
    assert "the unit before ends at 11" in str(verify(tmp_path).faults[0])


def test_verify_counts_batches(made: BatchStore) -> None:
    report = verify(made.root)
    assert report.ok, report.faults
    assert (report.counts.queues, report.counts.units) == (2, 20)
    made.put_batch([(b"x", {})], unit=False)
    (fault,) = verify(made.root).faults
    assert "1 records without a unit" in fault.reason
    (made.root / "abort").touch()
    assert verify(made.root).ok


def test_verify_looks_at_each_unit(made: BatchStore) -> None:
    record, parts = made.batches[9]
    when = FIRST_MS + 90
    for store_ms, tags, shown in ((when + 1, "a", "store time"), (when, "b", "tags code")):
        wrong = Record(
            TOPIC, 0, record.queue_offset, record.physical_offset, record.size, tags, b""
        )
        made.put_unit(wrong, len(parts), store_ms, number=9)
        (fault,) = verify(made.root).faults
        assert shown in fault.reason
    made.put_unit(record, len(parts), when, number=9)
    assert verify(made.root).ok
    made.put_unit(record, len(parts), when, number=11)
    (fault,) = verify(made.root).faults
    assert "behind the end" in fault.reason


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
        assert TOPIC in store.topics()
