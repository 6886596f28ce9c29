"""Consumers of a store that is being written: in the same process and in another one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore.config import StoreConfig
from rocketstore.errors import RocketStoreError, StoreClosedError, StoreReadOnlyError
from rocketstore.tools import verify
from tests.support.small_store import dispatched

WRITER = """
import sys, rocketstore
with rocketstore.open(sys.argv[1], commit_log_file_size_bytes=65536, consume_queue_file_size_bytes=1280,
                      index_slots=100, index_entries=400) as store:
    writer = store.writer("orders", queue_id=0)
    print("open", flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            result = writer.put(b"x" * 100)
        print(result.queue_offset, flush=True)
"""


class Writer:
    """Another process that puts as many messages as it is told to."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._told() != "open":
            self._process.communicate()
            raise AssertionError("the writer could not open its store")

    def _told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def put(self, count: int) -> int:
        """Puts messages; the queue offset of the last one."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        return int(self._told())

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> None:
        """Ends the process by closing its input; it closes its store."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.communicate(timeout=60)


class Writers:
    """Starts writers, and ends those that are left."""

    def __init__(self) -> None:
        self._started: list[Writer] = []

    def __call__(self, path: Path) -> Writer:
        self._started.append(Writer(path))
        return self._started[-1]

    def stop(self) -> None:
        for writer in self._started:
            writer.stop()


@pytest.fixture
def write_to() -> Iterator[Writers]:
    writers = Writers()
    yield writers
    writers.stop()


@pytest.fixture
def store(tmp_path: Path, small_config: StoreConfig) -> Iterator[rocketstore.Store]:
    with rocketstore.open(tmp_path / "store", config=small_config) as opened:
        yield opened


def offsets_of(messages: object) -> list[int]:
    return [message.queue_offset for message in messages]  # type: ignore[attr-defined]


def test_own_writes_are_read_at_once(store: rocketstore.Store) -> None:
    writer = store.writer("orders", queue_id=0)
    consumer = store.consumer("orders", queue_id=0)
    for number in range(300):
        writer.put(b"%d" % number)
        assert [message.body for message in consumer] == [b"%d" % number]


def test_own_topics_are_known_at_once(store: rocketstore.Store) -> None:
    for number in range(50):
        store.put_message(f"topic-{number}", b"x", queue_id=number)
        assert f"topic-{number}" in store.topics(system=True)
        store.put_message(f"topic-{number}", b"x", queue_id=number + 1)
        assert store.queues(f"topic-{number}") == [number, number + 1]


def test_a_follower_in_a_thread_gets_everything_once_and_in_order(
    store: rocketstore.Store, small_switch_interval: None
) -> None:
    seen: dict[int, list[int]] = {}

    def follow() -> None:
        left = 4 * 200
        for message in store.consumer("orders").follow(timeout_s=30):
            seen.setdefault(message.queue_id, []).append(message.queue_offset)
            left -= 1
            if not left:
                return

    def write(queue_id: int) -> None:
        writer = store.writer("orders", queue_id=queue_id, durability="os")
        for _ in range(200):
            writer.put(b"x" * 50)

    threads = [threading.Thread(target=follow)]
    threads += [threading.Thread(target=write, args=(queue_id,)) for queue_id in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert seen == {queue_id: list(range(200)) for queue_id in range(4)}


def test_a_group_goes_on_after_the_store_was_opened_again(
    tmp_path: Path, small_config: StoreConfig
) -> None:
    for step in range(3):
        with rocketstore.open(tmp_path / "store", config=small_config) as store:
            writer = store.writer("orders")
            for _ in range(10):
                writer.put(b"x")
            with store.consumer("orders", group="billing") as consumer:
                expected = list(range(7 * step, 7 * step + 7))
                assert offsets_of(consumer.poll(7)) == expected
                consumer.commit()
    document = json.loads((tmp_path / "store" / "config" / "consumerOffset.json").read_text())
    assert document["offsetTable"] == {"orders@billing": {"0": 21}}


def test_a_commit_is_behind_the_flush_of_what_it_implies(
    tmp_path: Path, small_config: StoreConfig
) -> None:
    """D-17, in a store whose puts do not wait for the disk."""
    config = small_config.replace(durability="os", flush_interval_ms=10_000)
    with rocketstore.open(tmp_path / "store", config=config) as store:
        results = [store.writer("orders").put(b"x") for _ in range(10)]
        consumer = store.consumer("orders", group="billing")
        assert len(consumer.poll(10)) == 10
        consumer.commit()
        assert store.flushed_offset >= results[-1].end_offset


def test_closing_the_store_ends_a_wait(tmp_path: Path, small_config: StoreConfig) -> None:
    store = rocketstore.open(tmp_path / "store", config=small_config)
    errors: list[BaseException] = []

    def follow() -> None:
        try:
            next(store.consumer("orders").follow())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    store.close()
    thread.join(30)
    assert [type(error) for error in errors] == [StoreClosedError]


def test_every_message_is_found_by_its_time(
    store: rocketstore.Store, writer: rocketstore.Writer
) -> None:
    times = [writer.put(b"x").store_timestamp_ms for _ in range(50)]
    for when in set(times):
        assert store.offset_at("orders", 0, when) == times.index(when)
        assert store.offset_at("orders", 0, when, "upper") == 49 - times[::-1].index(when)


def test_a_reader_in_another_process_follows(tmp_path: Path, write_to: Writers) -> None:
    writer = write_to(tmp_path / "store")
    with rocketstore.open(tmp_path / "store", "r") as reader:
        consumer = reader.consumer("orders")
        for step in range(20):
            last = writer.put(25)
            assert last == 25 * step + 24
            seen = [m.queue_offset for m in consumer.poll(25, timeout_s=30)]
            while len(seen) < 25:
                seen += [m.queue_offset for m in consumer.poll(25 - len(seen), timeout_s=30)]
            assert seen == list(range(25 * step, 25 * step + 25))
        with pytest.raises(StoreReadOnlyError):
            reader.writer("orders")
    writer.stop()
    assert verify(tmp_path / "store", index_slots=100, index_entries=400).faults == ()


def test_a_reader_wakes_soon_after_the_message_is_there(tmp_path: Path, write_to: Writers) -> None:
    writer = write_to(tmp_path / "store")
    with rocketstore.open(tmp_path / "store", "r") as reader:
        stream = reader.consumer("orders").follow(timeout_s=30)
        waits = []
        for _ in range(20):
            writer.put(1)
            before = time.monotonic()
            next(stream)
            waits.append(time.monotonic() - before)
    # Far below the 100 ms after which a reader looks by itself.
    assert sorted(waits)[10] < 0.05


def test_names_of_groups(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store") as store:
        for topic in ("orders", "events"):
            store.writer(topic).put(b"x")
        assert store.groups() == []
        for topic, group in (("orders", "b"), ("orders", "a"), ("events", "b"), ("events", "c")):
            with store.consumer(topic, group=group) as consumer:
                consumer.poll(timeout_s=20)
                consumer.commit()
        with store.consumer("orders", group="new") as consumer:
            consumer.poll()
        assert store.groups() == ["a", "b", "c"]
        assert store.groups("orders") == ["a", "b"]
        assert store.groups("no such topic") == []
        with pytest.raises(TypeError, match="^topic = 5"):
            store.groups(5)  # type: ignore[arg-type]
    with rocketstore.open(tmp_path / "store", "r") as reader:
        assert reader.groups("events") == ["b", "c"]


def test_a_group_is_read_but_not_committed_beside_the_writer(
    tmp_path: Path, write_to: Writers
) -> None:
    writer = write_to(tmp_path / "store")
    writer.put(5)
    with rocketstore.open(tmp_path / "store", "r") as reader:
        consumer = reader.consumer("orders", group="billing")
        seen: list[int] = []
        while len(seen) < 5:
            seen += offsets_of(consumer.poll(timeout_s=30))
        with pytest.raises(StoreReadOnlyError, match="keep the consumer's `positions` yourself"):
            consumer.commit()


def test_a_reader_begins_where_the_group_stands_now(tmp_path: Path) -> None:
    """Not where it stood when the reader was opened; and it takes nothing from the group."""
    with rocketstore.open(tmp_path / "store") as store:
        last = [store.writer("orders").put(b"%d" % n) for n in range(9)][-1]
        with rocketstore.open(tmp_path / "store", "r") as reader:
            with pytest.raises(StoreReadOnlyError, match="belongs to the process"):
                reader.consumer("orders", group="billing").commit()  # also without a change
            store.wait_flushed(last.end_offset)
            dispatched(store)
            for step in range(1, 4):
                with store.consumer("orders", group="billing") as billing:
                    billing.poll(step)
                    billing.commit()
                    begin = billing.positions
                    assert reader.consumer("orders", group="billing").positions == begin
                    assert reader.consumer("orders", group="billing").lag() == billing.lag()
                assert reader.groups("orders") == ["billing"]


def test_a_reader_survives_the_death_of_its_writer_and_meets_the_next(
    tmp_path: Path, write_to: Writers
) -> None:
    writer = write_to(tmp_path / "store")
    last = writer.put(50)
    with rocketstore.open(tmp_path / "store", "r") as reader:
        consumer = reader.consumer("orders")
        seen = []
        while len(seen) <= last:
            seen += offsets_of(consumer.poll(1000, timeout_s=30))
        writer.kill()
        writer = write_to(tmp_path / "store")
        last = writer.put(50)
        while len(seen) <= last:
            seen += offsets_of(consumer.poll(1000, timeout_s=30))
        assert seen == list(range(100))


def test_a_second_process_cannot_commit_for_a_group(tmp_path: Path, write_to: Writers) -> None:
    """One process owns a group: only the writer may commit, and there is one writer."""
    write_to(tmp_path / "store")
    with pytest.raises(RocketStoreError):
        rocketstore.open(tmp_path / "store")
