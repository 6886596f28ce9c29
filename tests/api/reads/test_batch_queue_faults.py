"""Batch queues that are damaged: what a consumer makes of them, and verify."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from rocketstore import CorruptRecordError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.batch_queue import batch_directory
from rocketstore.tools import verify
from tests.support.batch_store import FILE, FIRST_MS, TOPIC, BatchStore, bodies, packed
from tests.support.made_store import Record, write_at
from tests.support.small_store import open_small


@pytest.fixture
def made(tmp_path: Path) -> BatchStore:
    made = BatchStore(tmp_path / "store")
    made.fill_batches(10)
    return made


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
        assert "seek(3, queue_id=0)" in str(caught.value.__notes__)
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
    assert "1 record without a unit" in fault.reason
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
    assert "after the end" in fault.reason


def test_a_first_file_that_was_cut_hides_no_other(made: BatchStore) -> None:
    first = batch_directory(StoreLayout(made.root), TOPIC, 0) / f"{0:020d}"
    os.truncate(first, FILE - 50)
    named, without = verify(made.root).faults
    assert (named.file, without.file) == (str(first), str(first.parent))
    assert f"the others of the queue have {FILE}" in named.reason
    assert without.reason == "4 records without a unit"
    with open_small(made.root, "r") as store:
        assert bodies(store) == made.bodies[10:]


def test_a_file_that_would_end_behind_every_offset(made: BatchStore) -> None:
    directory = batch_directory(StoreLayout(made.root), TOPIC, 0)
    name = directory / f"{(1 << 63) - 1 - ((1 << 63) - 1) % FILE:020d}"
    name.write_bytes(bytes(FILE))
    (fault,) = verify(made.root).faults
    assert fault.file == str(name) and "can be no file" in fault.reason
    with open_small(made.root, "r") as store:
        assert bodies(store) == made.bodies
