"""A stream over some topics beside others that grow, and topics of RocketMQ's own services, which are left out."""

from __future__ import annotations

import datetime
import itertools
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.writing import system_topics
from rocketstore.spark.source import stream_progress
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from rocketstore.values import is_system_topic
from tests.spark.reading import everything
from tests.support.made_store import MadeStore
from tests.support.small_store import open_small
from tests.support.waiting import wait_until


def stream_of(root: Path, **options: str) -> Progress:
    given = {"path": str(root), "topic": "rare", "startingOffsets": "earliest", **options}
    return Progress(ReadOptions.parse(given, stream=True))


def put(store: Store, topic: str, count: int = 1) -> int:
    writer = store.writer(topic)
    end = 0
    for _ in range(count):
        end = writer.put(b"x" * 100).end_offset
    store.wait_flushed(end, 60)
    return end


def bodies(stream: Progress, start: dict[str, Any], end: dict[str, Any]) -> int:
    return sum(chunk.rows for scan in stream.parts(start, end)[0] for chunk in scan)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_small(tmp_path / "s", durability="os", index_enabled=False) as store:
        yield store


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(stream_progress.time, "monotonic", lambda: now[0])
    return now


def test_other_topics_start_no_batch(store: Store, clock: list[float], tmp_path: Path) -> None:
    stream = stream_of(tmp_path / "s")
    put(store, "rare")
    start = stream.latest(stream.initial())
    for _ in range(14):
        put(store, "clicks", 20)
        clock[0] += 1
        assert stream.latest(start) == start
    put(store, "rare", 2)
    end = stream.latest(start)
    assert bodies(stream, start, end) == 2
    assert stream.latest(end) == end
    stream.close()


def test_nothing_is_read_twice(
    store: Store, clock: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[int, int]] = []
    first_wanted = stream_progress.first_wanted

    def spied(store: Store, begin: int, end: int, *more: Any) -> int | None:
        looked.append((begin, end))
        return first_wanted(store, begin, end, *more)

    monkeypatch.setattr(stream_progress, "first_wanted", spied)
    stream = stream_of(tmp_path / "s")
    start = stream.initial()
    ends = [0]
    for _ in range(3):
        ends.append(put(store, "clicks", 20))
        clock[0] += 1.1  # the store is opened again in between
        assert stream.latest(start) == start == stream.latest(start)
    assert looked == list(itertools.pairwise(ends))
    last = put(store, "rare")
    [scan] = stream.parts(start, stream.latest(start))[0]
    assert (scan.begin_offset, scan.end_offset) == (ends[-1], last)
    stream.close()


def test_a_backlog_of_others_is_passed_at_once(store: Store, tmp_path: Path) -> None:
    """maxBytesPerTrigger divided it, and every batch was empty."""
    put(store, "clicks", 200)
    put(store, "rare", 2)
    stream = stream_of(tmp_path / "s", maxBytesPerTrigger="2k")
    start = stream.initial()
    end = stream.latest(start)
    assert bodies(stream, start, end) == 2
    assert stream.latest(end) == end
    stream.close()


def test_the_offset_moves_on_after_a_while(
    store: Store, clock: list[float], tmp_path: Path
) -> None:
    """So a restart reads little again, and a trim takes nothing that the stream still needs."""
    stream = stream_of(tmp_path / "s")
    start = stream.initial()
    put(store, "clicks")
    assert stream.latest(start) == start
    clock[0] += stream_progress.PASSED_S - 1
    assert stream.latest(start) == start
    clock[0] += 1
    end = stream.latest(start)
    assert end["phys"] == store.flushed_offset
    assert bodies(stream, start, end) == 0
    put(store, "clicks")
    assert stream.latest(end) == end
    clock[0] += 2 * stream_progress.PASSED_S
    assert stream.latest(end) != end
    clock[0] += 2 * stream_progress.PASSED_S
    last = stream.latest(end)
    assert stream.latest(last) == last  # a store that does not grow gives no batch at all
    stream.close()


def test_the_offset_moves_on_after_many_bytes(
    store: Store, clock: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_progress, "PASSED_BYTES", 5000)
    monkeypatch.setattr(stream_progress, "PASSED_BYTES", 5000)
    put(store, "clicks", 100)
    put(store, "rare")
    stream = stream_of(tmp_path / "s")
    start, sizes = stream.initial(), []
    while (end := stream.latest(start)) != start:
        assert bodies(stream, start, end) == (end["phys"] == store.flushed_offset)
        sizes.append(end["phys"] - start["phys"])
        start = end
    assert len(sizes) > 3
    assert all(5000 <= size < 6000 for size in sizes[:-1])
    stream.close()


def test_a_run_that_ends_moves_the_offset_on(store: Store, tmp_path: Path) -> None:
    put(store, "clicks", 30)
    stream = stream_of(tmp_path / "s")
    start = stream.initial()
    stream.freeze()
    end = stream.latest(start, unlimited=True)
    assert end["phys"] == store.flushed_offset
    assert stream.latest(end, unlimited=True) == end
    stream.close()


def test_what_was_passed_may_be_trimmed(store: Store, clock: list[float], tmp_path: Path) -> None:
    stream, other = stream_of(tmp_path / "s"), stream_of(tmp_path / "s")
    start = stream.initial()
    assert start == other.initial()
    end = put(store, "clicks", 100)
    assert stream.latest(start) == start
    # A segment goes once it is dispatched, and the flusher has let go of it.
    wait_until(lambda: store.trim(before_offset=end) > 0)
    put(store, "rare", 3)
    assert bodies(stream, start, stream.latest(start)) == 3
    # A stream that has not looked there cannot know what it was.
    with pytest.raises(SparkFaceError, match="RS_DATA_LOST"):
        other.parts(start, other.latest(start))
    stream.close()
    other.close()


def test_damage_is_not_passed_by(store: Store, clock: list[float], tmp_path: Path) -> None:
    """The record may have been one of mine: its topic cannot be believed."""
    put(store, "clicks", 5)
    last = store.writer("clicks").put(b"y" * 100)
    put(store, "clicks", 5)
    store.close()
    log = tmp_path / "s" / "commitlog" / ("0" * 20)
    with open(log, "r+b") as file:
        file.seek(last.physical_offset + 100)
        file.write(b"\xff\xff\xff")
    stream = stream_of(tmp_path / "s")
    start = stream.initial()
    end = stream.latest(start)
    assert end != start
    with pytest.raises(rocketstore.CorruptRecordError):
        bodies(stream, start, end)
    stream.close()


def test_another_history_is_not_passed_by(store: Store, clock: list[float], tmp_path: Path) -> None:
    """An older copy, put back, has messages of mine where others were."""
    put(store, "clicks", 3)
    store.close()
    root, copy = tmp_path / "s", tmp_path / "copy"
    shutil.copytree(root, copy)
    with open_small(root, durability="os", index_enabled=False) as longer:
        put(longer, "clicks", 10)
    stream = stream_of(root)
    start = stream.initial()
    assert stream.latest(start) == start
    root.rename(tmp_path / "gone")
    copy.rename(root)
    with open_small(root, durability="os", index_enabled=False) as again:
        put(again, "rare", 2)
        put(again, "clicks", 30)
        clock[0] += 2
        stream.close()  # as after a store that was replaced
        end = stream.latest(start)
        assert bodies(stream, start, end) == 2
    stream.close()


def test_records_of_services_start_no_batch_and_hold_nothing_up(
    store: Store, clock: list[float], tmp_path: Path
) -> None:
    """A stream over all topics: what waits, and halves, are no messages; its offset passes them."""
    given = {"path": str(tmp_path / "s"), "startingOffsets": "earliest"}

    def stream_of_all(**more: str) -> Progress:
        return Progress(ReadOptions.parse({**given, **more}, stream=True))

    def put_later() -> None:
        writer, end = store.writer("orders"), 0
        for _ in range(7):
            end = writer.put(b"later", deliver_after=datetime.timedelta(hours=1)).end_offset
        store.transactions.prepare("orders", b"half", group="g")
        store.wait_flushed(end, 60)

    stream = stream_of_all()
    put(store, "orders")
    first = stream.latest(stream.initial())
    put_later()
    assert stream.latest(first) == first
    limited = stream_of_all(maxOffsetsPerTrigger="1", minOffsetsPerTrigger="1")
    put(store, "orders", 2)
    one = limited.latest(first)
    assert bodies(limited, first, one) == 1
    assert bodies(stream, first, stream.latest(first)) == 2
    put_later()
    stream.freeze()  # availableNow
    last = stream.latest(one)
    assert bodies(stream, one, last) == 1
    assert last["phys"] == store.flushed_offset
    every = stream_of_all(systemTopics="true")
    assert bodies(every, first, last) == 2 + 2 * 8
    for one_of_them in (stream, limited, every):
        one_of_them.close()


DELAYED, HALVES = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"


def make(root: Path) -> None:
    """As a broker leaves it: three delayed messages and a half beside two of applications."""
    store = MadeStore(root)
    store.put("orders", body=b"one", keys=["k"])
    for level in (2, 2, 7):
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
        store.put(DELAYED, level, b"later", properties=properties)
    store.put(HALVES, body=b"half")
    store.put("rmq_system", body=b"two")
    store.dispatch()


@pytest.mark.parametrize("topic", [DELAYED, HALVES, "rmq_sys_wheel_timer", "OFFSET_MOVED_EVENT"])
def test_names(topic: str) -> None:
    assert is_system_topic(topic)
    assert not is_system_topic(f"my_{topic}") and not is_system_topic("rmq_system")


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    make(tmp_path)
    assert system_topics(str(tmp_path), {}) == {DELAYED: 3, HALVES: 1}
    assert system_topics(str(tmp_path), {"topic_pattern": "RMQ.*"}) == {HALVES: 1}
    assert system_topics(str(tmp_path), {"topic_pattern": "o.*"}) == {}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_a_whole_broker_is_copied(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "s")
    with caplog.at_level(logging.WARNING, "rocketstore.spark.jobs.writing"):
        assert jobs.replay(spark, tmp_path / "s", tmp_path / "replayed") == 2
        assert jobs.compact(spark, tmp_path / "s", tmp_path / "compacted") == 2
        jobs.export(spark, tmp_path / "s", str(tmp_path / "files"), system_topics=True)
        assert jobs.import_(spark, str(tmp_path / "files"), tmp_path / "imported") == 2
    for name in ("replayed", "compacted", "imported"):
        assert [m.body for m in everything(tmp_path / name)] == [b"one", b"two"]
    told = f"left out: {HALVES} (1 messages), {DELAYED} (3 messages)"
    messages = [r.getMessage() for r in caplog.records if r.name.endswith("jobs.writing")]
    assert [told in message for message in messages] == [True] * 3
    remedies = [message.rpartition("; ")[2] for message in messages]
    by_directory = "import the directory topic=… of each with the argument topic to have them"
    assert remedies == ["name them in topics and replay them with to_topic to have them"] * 2 + [
        by_directory
    ]
    alone = str(tmp_path / "files" / f"topic={DELAYED}")
    assert jobs.import_(spark, alone, tmp_path / "imported", topic="late") == 3
    for job in (jobs.replay, jobs.compact):
        for topic in (DELAYED, HALVES):
            with pytest.raises(SparkFaceError, match=r"^\[RS_BAD_OPTION\] topics = .*to_topic"):
                job(spark, tmp_path / "s", tmp_path / "none", topics=[topic, "orders"])
    assert not (tmp_path / "none").exists()
    more = jobs.replay(spark, tmp_path / "s", tmp_path / "more", topics=DELAYED, to_topic="late")
    assert more == 3
    with rocketstore.open(tmp_path / "more", "r") as store:
        assert store.topics() == ["late"]
