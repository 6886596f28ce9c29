"""Inner batches of RocketMQ 5: a row for each message, as consumers are given them."""

from __future__ import annotations

import logging
import random
import zlib
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.scanning.delivered import NEEDED, messages_in
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.stats import merge_stats, stats_part, stats_scans
from rocketstore.spark.source.group_offsets import GroupOffsets
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.archive.watched_object_store import watch
from tests.spark.reading import everything, rows_in, rows_of
from tests.support.batch_store import TOPIC, BatchStore, packed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PARTS = [(b"packed-%d" % n, {"TAGS": "ab"[n % 2], "KEYS": f"p{n}"}) for n in range(3)]


def make(root: Path, count: int = 12) -> list[rocketstore.Message]:
    """Batches, one of them compressed, and plain messages; what consumers are given, in the order of the log."""
    store = BatchStore(root)
    store.fill_batches(count)
    store.put_batch(PARTS, sys_flag=0x301, body=zlib.compress(packed(PARTS)))
    messages = everything(root)
    assert len(messages) == count + len(store.bodies)
    return messages


def batches(root: Path, **options: str) -> list[Any]:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    from rocketstore.spark.source.plan import plan_batch, read

    chosen = ReadOptions.parse({"path": str(root), **options}, stream=False)
    scans, bounds = plan_batch(chosen)
    return [batch for scan in scans for batch in read(scan, chosen, bounds)]


@pytest.mark.parametrize("options", [{}, {"splitBytes": "1000"}, {"decompress": "false"}], ids=str)
def test_rows_are_what_a_consumer_is_given(tmp_path: Path, options: dict[str, str]) -> None:
    messages = make(tmp_path)
    found = batches(tmp_path, **options)
    assert rows_in(found) == rows_of(messages)
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [(row["flag"], row["sys_flag"]) for row in rows] == [
        (m.flag, m.sys_flag) for m in messages
    ]
    assert [dict(row["properties"]) for row in rows] == [dict(m.properties) for m in messages]


def test_the_same_chunk_by_chunk(tmp_path: Path, rng: random.Random) -> None:
    messages = make(tmp_path)
    for chunk_bytes in (1, 300, rng.randrange(1, 3000)):
        scan = rocketstore.scan(tmp_path, columns=[*NEEDED, "body"], chunk_bytes=chunk_bytes)
        assert [b for c, _ in messages_in(scan) for b in c["body"].tolist()] == [
            m.body for m in messages
        ]


def test_an_archive_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece was fetched again for each chunk of it with a batch."""
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    messages = make(tmp_path / "s", 40)
    uri = f"file://{tmp_path}/archive"
    end = rocketstore.ship(tmp_path / "s", uri).end_offset
    system = watch(monkeypatch)
    scan = rocketstore.scan(uri, columns=[*NEEDED, "body"], chunk_bytes=300)
    assert [b for c, _ in messages_in(scan) for b in c["body"].tolist()] == [
        m.body for m in messages if m.physical_offset < end
    ]
    pieces = [segment.name for segment in scan.archive.segments for _ in segment.pieces]
    fetched = [name for what, name in system.calls if what == "read_at" and name.isdecimal()]
    assert fetched == pieces and len(pieces) > 1


QUEUE, FROM_7 = {"topic": TOPIC}, f'{{"{TOPIC}": {{"0": 7}}}}'


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"columns": "queue_offset,tags"}, lambda m: True),
        ({"tags": "b"}, lambda m: m.tags == "b"),
        ({**QUEUE, "startingOffsets": FROM_7}, lambda m: m.queue_offset >= 7),
        ({**QUEUE, "endingOffsets": FROM_7}, lambda m: m.queue_offset < 7),
        ({"conditions": '[["queue_offset", "in", [5]]]'}, lambda m: m.queue_offset == 5),
    ],
    ids=["columns", "tags", "from", "to", "conditions"],
)
def test_what_is_chosen_is_chosen_by_message(
    tmp_path: Path, options: dict[str, str], wanted: Any
) -> None:
    messages = [m for m in make(tmp_path) if wanted(m)]
    if "topic" in options:
        messages = [m for m in messages if m.topic == TOPIC]
    rows = [row for batch in batches(tmp_path, **options) for row in batch.to_pylist()]
    assert [(row["queue_offset"], row["tags"]) for row in rows] == [
        (m.queue_offset, m.tags) for m in messages
    ]


@pytest.mark.parametrize("first", range(8))
def test_a_stream_begins_within_a_batch(tmp_path: Path, first: int) -> None:
    """It gave out the messages in front, when the batch was the first thing that it read."""
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    from rocketstore.spark.source.plan import read

    store = BatchStore(tmp_path)
    for _ in range(3):
        store.put_batch(PARTS)
    given = {**QUEUE, "startingOffsets": f'{{"{TOPIC}": {{"0": {first}}}}}'}
    chosen = ReadOptions.parse(
        {"path": str(tmp_path), "maxOffsetsPerTrigger": "1", **given}, stream=True
    )
    stream = Progress(chosen)
    start, found = stream.initial(), []
    while (end := stream.latest(start)) != start:
        scans, bounds = stream.parts(start, end)
        found += [batch for scan in scans for batch in read(scan, chosen, bounds)]
        start = end
    stream.close()
    rows = [row["queue_offset"] for batch in found for row in batch.to_pylist()]
    assert rows == list(range(first, 9)) and not start.get("from")


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 7, 100])
def test_a_limit_counts_messages(tmp_path: Path, most: int) -> None:
    """It counted a record of several as one."""
    store = BatchStore(tmp_path)
    store.fill_batches(16)  # of 1, 2, 3, 4 messages, and one message behind each
    for number in range(12):
        store.put(
            body=b"%d" % number, sys_flag=(4, 12, 0)[number % 3]
        )  # no consumer is given two of three
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
    stream = Progress(ReadOptions.parse({"path": str(tmp_path), **given}, stream=True))
    offset, sizes, places = stream.initial(), [], []
    while (end := stream.latest(offset)) != offset:
        counts = [
            sum(there is None or bool(there[row]) for row in range(columns.rows))
            for scan in stream.parts(offset, end)[0]
            for columns, there in messages_in(scan)
        ]
        sizes.append(sum(counts))
        places.append(end["phys"])
        offset = end
    stream.close()
    assert sum(sizes) == 40 + 16 + 4
    assert max(sizes) == max(most, 4) if most < 60 else sizes == [60]
    if most > 4:  # as many as there is room for: the next record has four at most
        assert min(sizes[:-1], default=most) > most - 4
    assert set(places) <= {r.physical_offset + r.size for r in store.records} | {
        r.physical_offset for r in store.records
    }


def test_jobs_and_groups_count_messages(tmp_path: Path) -> None:
    messages = make(tmp_path / "s")
    mine = [m for m in messages if m.topic == TOPIC]
    rows = merge_stats(
        row for scan in stats_scans(tmp_path / "s", 1 << 30) for row in stats_part(scan)
    )
    [row] = [row for row in rows if row[0] == TOPIC]
    assert row[3:5] == (len(mine), sum(m.size for m in mine))
    assert row[-2:] == (0, len(mine) - 1)
    stream = Progress(ReadOptions.parse({"path": str(tmp_path / "s")}, stream=True))
    assert stream.queue_offsets(stream.end())[TOPIC] == {0: len(mine)}
    stream.close()


def test_a_group_without_a_codec_stops_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks may have on their hosts what the driver has not."""
    make(tmp_path)

    def decompress(record: object) -> bytes:
        raise ModuleNotFoundError("no module of this kind of compression")

    monkeypatch.setattr("rocketstore.log.read.batch_reader.decompress", decompress)
    options = ReadOptions.parse({"path": str(tmp_path), "consumerGroup": "g"}, stream=True)
    stream = Progress(options)
    with caplog.at_level(logging.WARNING):
        GroupOffsets(options.path, "g").publish(stream, stream.end())
    stream.close()
    assert "are not stored" in caplog.text and "kind of compression" in caplog.text


def test_exports_hold_messages(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    from tests.spark.jobs.test_export import read, write

    messages = make(tmp_path / "s")
    rows = write(tmp_path / "s", tmp_path / "out", 1 << 30)
    assert sum(row[3] for row in rows) == len(messages)
    assert sorted(read(tmp_path / "out")) == sorted(rows_of(messages))


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_messages_of_a_batch_have_an_order(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    """They share a physical offset: of a key any one was the last, and copies came in any order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    store = BatchStore(tmp_path / "s")
    for batch in range(8):
        keys = [f"{batch}-{n % 5}" for n in range(40)]
        store.put_batch([(b"%d" % n, {"KEYS": key}) for n, key in enumerate(keys)])
    messages = everything(tmp_path / "s")
    last = {m.keys: m for m in messages}
    adaptive = "spark.sql.adaptive.enabled"  # it would bring so few rows together in one partition
    spark.conf.set(adaptive, "false")
    try:
        assert jobs.compact(spark, tmp_path / "s", tmp_path / "small") == len(last) == 40
    finally:
        spark.conf.set(adaptive, "true")
    found = [(m.keys, m.body) for m in everything(tmp_path / "small")]
    assert found == [(m.keys, m.body) for m in last.values()]
    rows = [(m.topic, m.physical_offset, m.queue_offset, m.body) for m in messages]
    rng.shuffle(rows)
    names = ["topic", "physical_offset", "queue_offset", "body"]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], names)
    pq.write_table(table, tmp_path / "shuffled.parquet")
    jobs.import_(spark, str(tmp_path / "shuffled.parquet"), tmp_path / "back")
    assert [m.body for m in everything(tmp_path / "back")] == [m.body for m in messages]


@pytest.mark.parametrize("failing", ["true", "false"])
def test_a_batch_that_is_none(tmp_path: Path, failing: str) -> None:
    store = BatchStore(tmp_path)
    store.put_batch(PARTS)
    store.put_batch(PARTS, body=packed(PARTS)[:-1])
    store.put_batch(PARTS)
    if failing == "true":
        with pytest.raises(SparkFaceError, match=r"^\[RS_CORRUPT_RECORD\] host="):
            batches(tmp_path)
    else:
        rows = rows_in(batches(tmp_path, failOnDataLoss="false"))
        assert [row[4] for row in rows] == [body for body, _ in PARTS] * 2


def test_chunks_that_grow_are_handed_out_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = make(tmp_path)
    monkeypatch.setattr("rocketstore.scanning.delivered.CHUNK_BYTES", 200)
    found = batches(tmp_path)
    assert len(found) > 5 and rows_in(found) == rows_of(messages)
