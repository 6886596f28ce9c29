"""`untrusted=True`: the log is read once and checked as a whole, nothing else of the store is believed."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import ConfigError, CorruptRecordError, ReadFailedError, StoreReadOnlyError
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.mapped_files import memory_log as copied_log
from rocketstore.log.mapped_files.memory_log import MemoryLog
from tests.corruption.judging import fields_of
from tests.corruption.reference import SEGMENT, Reference, make_reference
from tests.support.batch_store import TOPIC, BatchStore
from tests.support.made_store import rocketmq_store, write_at
from tests.support.small_store import Calls


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    return make_reference(tmp_path / "s", record_crc=True, size=2 * SEGMENT)


def contents(store: rocketstore.Store) -> list[object]:
    return [
        (
            topic,
            queue_id,
            [fields_of(message) for message in store.consumer(topic, queue_id=queue_id)],
        )
        for topic in store.topics(system=True)
        for queue_id in store.queues(topic)
    ]


def open_untrusted(root: Path) -> rocketstore.Store:
    return rocketstore.open(root, "r", untrusted=True)


def test_all_is_read_as_from_a_store_that_is_trusted(reference: Reference) -> None:
    with rocketstore.open(reference.root, "r") as trusted, open_untrusted(reference.root) as store:
        assert contents(store) == contents(trusted) != []
        for one in reference.records:
            assert fields_of(store.get(one.start)) == fields_of(trusted.get(one.start))
        found = [message.physical_offset for message in store.query("orders", "k1")]
        assert found == [message.physical_offset for message in trusted.query("orders", "k1")] != []


def test_nothing_that_reads_the_files_takes_such_a_store(
    reference: Reference, tmp_path: Path
) -> None:
    """They may have become others since they were checked."""
    with open_untrusted(reference.root) as store:
        with pytest.raises(rocketstore.ConfigError, match="untrusted"):
            rocketstore.scan(store)
        with pytest.raises(rocketstore.ConfigError, match="untrusted"):
            store.ship(f"file://{tmp_path}/archive")
        assert contents(store)


def test_no_file_of_the_store_is_mapped_or_kept_open(reference: Reference) -> None:
    gc.collect()  # what made the store
    with open_untrusted(reference.root) as store:
        assert contents(store)
        assert str(reference.root) not in Path("/proc/self/maps").read_text()
        opened = [os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors()]
        assert not [path for path in opened if path.startswith(str(reference.root))]


def _descriptors() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")]


def test_a_file_that_is_cut_or_changed_under_a_reader_changes_nothing(reference: Reference) -> None:
    """With a mapping the first is a signal, the second another message than the one that was checked."""
    with open_untrusted(reference.root) as store:
        expected = contents(store)
        view = store.get(0).body_view
        first, second = reference.segments
        os.truncate(first, 0)
        second.write_bytes(b"x" * SEGMENT)
        assert contents(store) == expected
        assert bytes(view) == store.get(0).body


def test_a_file_that_is_cut_while_it_is_read_is_named(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(copied_log.syscalls)
    calls.before["pread"] = lambda: os.truncate(reference.segments[0], 5000)
    monkeypatch.setattr(copied_log, "syscalls", calls)
    with pytest.raises(ReadFailedError, match=f"{reference.segments[0]} lost its end"):
        open_untrusted(reference.root)


def test_queues_and_marks_of_the_directory_are_not_believed(reference: Reference) -> None:
    with open_untrusted(reference.root) as store:
        expected = contents(store)
    for path in reference.root.rglob("*"):
        if path.is_file() and path.parent.name != "commitlog":
            path.write_bytes(b"\xff" * path.stat().st_size)
    with open_untrusted(reference.root) as store:
        assert contents(store) == expected


def test_batch_queues_are_not_opened(tmp_path: Path) -> None:
    root = make_reference(tmp_path / "s", record_crc=True, size=2 * SEGMENT).root
    queue = root / "batchconsumequeue" / "batches" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(b"\x01" * 4600)
    with open_untrusted(root) as store:
        assert "batches" not in store.topics(system=True)
        assert store.queues("batches") == []


def test_a_damaged_record_is_an_error_when_it_is_read(reference: Reference) -> None:
    one = reference.records[3]
    write_at(reference.segments[0], one.end - 30, b"\x7f")
    with open_untrusted(reference.root) as store:
        with pytest.raises(CorruptRecordError):
            store.get(one.start)
        assert store.get(reference.records[4].start).body is not None


def test_it_goes_with_reading_only(reference: Reference) -> None:
    with pytest.raises(ConfigError, match="untrusted"):
        rocketstore.open(reference.root, untrusted=True)
    before = {path: path.stat().st_mtime_ns for path in reference.root.rglob("*")}
    with open_untrusted(reference.root) as store, pytest.raises(StoreReadOnlyError):
        store.writer("orders").put(b"no")
    assert {path: path.stat().st_mtime_ns for path in reference.root.rglob("*")} == before


def test_a_log_beyond_the_bound_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number * 8192:020d}").write_bytes(b"x" * 8192)
    with pytest.raises(ReadFailedError, match="does not fit into memory"):
        MemoryLog(tmp_path, room_bytes=16384).load()
    log = MemoryLog(tmp_path, room_bytes=3 * 8192)
    log.load()
    assert [file.read(0, 8192) for file in log.files] == [b"x" * 8192] * 3


def test_a_file_that_grows_meanwhile_does_not_get_past_the_bound(tmp_path: Path) -> None:
    """Holes take no disk, and what fills them later is counted when it is read."""
    path = tmp_path / f"{0:020d}"
    path.touch()
    os.truncate(path, 8192)
    log = MemoryLog(tmp_path, room_bytes=4096)
    log.load()
    assert log.files[0].read(0, 8192) == bytes(8192)
    path.write_bytes(b"x" * 8192)
    with pytest.raises(ReadFailedError):
        log._open(str(path), 0, 8192)


def test_holes_take_neither_time_nor_memory(tmp_path: Path) -> None:
    for number in range(64):
        path = tmp_path / f"{number << 30:020d}"
        path.touch()
        os.truncate(path, 1 << 30)
    log = MemoryLog(tmp_path)
    log.load()
    assert sum(file.size for file in log.files) == 64 << 30
    assert all(isinstance(file, MappedFile) for file in log.files)


def test_a_file_that_no_log_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(ReadFailedError, match=str(path)):
        MemoryLog(tmp_path).load()


@pytest.mark.parametrize("name", ["clean-533", "torn-533", "damaged-533", "clean-498"])
def test_stores_of_rocketmq(name: str, tmp_path: Path) -> None:
    try:
        root, expected = rocketmq_store(name, tmp_path)
    except FileNotFoundError:
        pytest.skip("no such store among the vectors")
    with open_untrusted(root) as store:
        assert store.begin_offset == expected["must"]["first_log_offset"]
        assert store.topics(system=True)


# ---- batch queues ----


@pytest.fixture
def batches(tmp_path: Path) -> BatchStore:
    made = BatchStore(tmp_path / "batches")
    made.fill_batches(40)
    return made


def test_batch_queues_are_made_from_the_log(batches: BatchStore) -> None:
    """Their files are not opened; once such a topic had no message, and no error told it."""
    with rocketstore.open(batches.root, "r") as trusted, open_untrusted(batches.root) as store:
        assert store.topics(system=True) == trusted.topics(system=True)
        assert contents(store) == contents(trusted) != []
        assert [message.body for message in store.consumer(TOPIC)] == batches.bodies
        middle = batches.base // 2
        with store.consumer(TOPIC) as consumer:
            consumer.seek(middle, queue_id=0)
            assert [message.queue_offset for message in consumer.poll(2)] == [middle, middle + 1]
        found = [message.body for message in store.query(TOPIC, "k3")]
        assert found == [message.body for message in trusted.query(TOPIC, "k3")] != []


def test_batch_queues_of_an_untrusted_store_are_seen_in_an_event_loop(batches: BatchStore) -> None:
    async def read() -> list[bytes]:
        opening = rocketstore.aio.open(batches.root, "r", untrusted=True)
        async with opening as store, store.consumer(TOPIC) as consumer:
            return [message.body async for message in consumer]

    assert asyncio.run(read()) == batches.bodies


def test_files_of_batch_queues_are_not_believed(batches: BatchStore) -> None:
    for path in (batches.root / "batchconsumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(b"\x7f" * path.stat().st_size)
    with open_untrusted(batches.root) as store:
        assert [message.body for message in store.consumer(TOPIC)] == batches.bodies


def test_a_directory_of_batch_queues_hides_no_plain_topic(reference: Reference) -> None:
    """Who may make a directory may not take a topic away."""
    with rocketstore.open(reference.root, "r") as trusted:
        expected = contents(trusted)
    (reference.root / "batchconsumequeue" / "orders" / "0").mkdir(parents=True)
    with open_untrusted(reference.root) as store:
        assert contents(store) == expected != []


def test_a_batch_whose_queue_offset_cannot_be_is_named(
    batches: BatchStore, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = [*batches.bodies]
    for base in (0, 2**63 - 2):
        batches.base = base
        batches.put_batch([(b"x", {}), (b"y", {})])
    with open_untrusted(batches.root) as store:
        assert [message.body for message in store.consumer(TOPIC)] == wanted
    assert caplog.text.count("cannot be") == 2
