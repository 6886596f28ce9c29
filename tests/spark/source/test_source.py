"""The batch source, called as Spark calls it but without a JVM."""

from __future__ import annotations

import pickle
import random
import re
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.schema import VIEWS, ddl
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.spark.reading import make_store, rows_in, rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


REMEDY = "failOnDataLoss=false: go on after it"
SKIPS = "failOnDataLoss=false skips it"


def read_all(root: Path, **options: str) -> list[Any]:
    """Record batches of all partitions; each scan goes through a pickle, as on its way to a task."""
    from rocketstore.spark.source.plan import plan_batch, read

    given = ReadOptions.parse({"path": str(root), **options}, stream=False)
    scans, bounds = pickle.loads(pickle.dumps(plan_batch(given)))
    return [batch for scan in scans for batch in read(scan, given, bounds)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("rocketstore.spark.")]


def numbers(batches: list[Any], name: str = "physical_offset") -> list[int]:
    return [row for batch in batches for row in batch.column(name).to_pylist()]


@pytest.mark.parametrize("split", ["1g", "64k", "1000"])
def test_every_message_once_in_the_order_of_the_log(
    tmp_path: Path, rng: random.Random, split: str
) -> None:
    messages = make_store(tmp_path / "s", rng)
    assert rows_in(read_all(tmp_path / "s", splitBytes=split)) == rows_of(messages)


def test_columns_have_the_declared_types(tmp_path: Path, rng: random.Random) -> None:
    from rocketstore.spark.batches import schema_of

    make_store(tmp_path / "s", rng, 50)
    for view in VIEWS:
        options = {"view": view, "includeHeaders": "true"}
        fields = ReadOptions.parse({"path": "p", **options}).fields
        assert len(fields) == len(VIEWS[view]) and ddl(fields).count("`") == 2 * len(fields)
        for batch in read_all(tmp_path / "s", **options):
            assert batch.schema == schema_of(fields)
            batch.validate(full=True)


def test_chosen_columns_come_alone_and_in_order(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng, 50)
    (batch,) = read_all(tmp_path / "s", columns="queue_offset, topic")
    assert batch.schema.names == ["queue_offset", "topic"]
    assert batch.column("topic").to_pylist() == [m.topic for m in messages]
    for wrong in ("body,nothing", "", "body,body"):
        with pytest.raises(SparkFaceError, match="RS_UNKNOWN_COLUMN"):
            read_all(tmp_path / "s", columns=wrong)
    (batch,) = read_all(tmp_path / "s", view="kafka", columns="timestampType")
    assert batch.column(0).to_pylist() == [1] * len(messages)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"topic": "orders"}, lambda m: m.topic == "orders"),
        ({"topic": "orders, events"}, lambda m: True),
        ({"topicPattern": "e.*"}, lambda m: m.topic == "events"),
        ({"queues": "1,3"}, lambda m: m.queue_id in (1, 3)),
        (
            {"queues": '{"orders": [0]}', "topic": "orders"},
            lambda m: (m.topic, m.queue_id) == ("orders", 0),
        ),
        ({"tags": "red || grün"}, lambda m: m.tags in ("red", "grün")),
        ({"startingOffsets": "latest"}, lambda m: False),
        ({"startingOffsets": "earliest"}, lambda m: True),
        (
            {
                "topic": "orders",
                "startingOffsets": '{"orders": {"0": 10, "1": -1, "2": -2, "3": 5}}',
                "endingOffsets": '{"orders": {"0": 20, "3": 6}}',
            },
            lambda m: m.topic == "orders"
            and (m.queue_id == 2 or (m.queue_id, m.queue_offset) in {(3, 5)}
                 or (m.queue_id == 0 and 10 <= m.queue_offset < 20)),
        ),
        (
            {"topic": "orders", "startingOffsets": '{"orders": {"0": 30, "3": -1}}'},
            lambda m: m.topic == "orders" and m.queue_id != 3
            and (m.queue_id != 0 or m.queue_offset >= 30),
        ),
        (
            {"startingOffsets": '{"orders": {"0": 30}}'},
            lambda m: (m.topic, m.queue_id) != ("orders", 0) or m.queue_offset >= 30,
        ),
    ],
)  # fmt: skip
def test_what_is_read_is_chosen_by_options(
    tmp_path: Path, rng: random.Random, options: dict[str, str], wanted: Any
) -> None:
    messages = [m for m in make_store(tmp_path / "s", rng) if wanted(m)]
    found = numbers(read_all(tmp_path / "s", splitBytes="30k", **options))
    assert found == [m.physical_offset for m in messages]


def test_a_read_begins_at_the_first_message_of_its_queues(
    tmp_path: Path, rng: random.Random
) -> None:
    """As soon as every queue that is wanted has an offset."""
    from rocketstore.spark.source.plan import plan_batch

    messages = [m for m in make_store(tmp_path / "s", rng, 200) if m.topic == "orders"]
    places = {(m.queue_id, m.queue_offset): m.physical_offset for m in messages}

    def begin(offsets: str, **options: str) -> int:
        given = {"path": str(tmp_path / "s"), "topic": "orders", "startingOffsets": offsets}
        scans, _ = plan_batch(ReadOptions.parse({**given, **options}, stream=False))
        return int(scans[0].begin_offset)

    two = '{"orders": {"0": 9, "1": 7}}'
    assert begin(two, queues="0,1") == min(places[0, 9], places[1, 7]) > 0
    assert begin(two) == begin(two, queues="0,2") == 0


def test_times_bound_a_read(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng)
    low, high = messages[150].store_timestamp_ms, messages[450].store_timestamp_ms + 1
    found = numbers(read_all(tmp_path / "s", startingTimestamp=str(low), endingTimestamp=str(high)))
    assert found == [m.physical_offset for m in messages if low <= m.store_timestamp_ms < high]


def test_the_kafka_view_has_kafkas_names(tmp_path: Path, rng: random.Random) -> None:
    """Options of a job for the Kafka connector work as they are."""
    messages = [m for m in make_store(tmp_path / "s", rng, 80) if m.topic == "orders"]
    options = {
        "subscribe": "orders",
        "kafka.bootstrap.servers": "host:9092",
        "includeHeaders": "true",
        "startingOffsets": "earliest",
    }
    rows = [row for batch in read_all(tmp_path / "s", **options) for row in batch.to_pylist()]
    assert list(rows[0]) == list(VIEWS["kafka"])
    assert [(r["value"], r["partition"], r["offset"]) for r in rows] == [
        (m.body, m.queue_id, m.queue_offset) for m in messages
    ]
    assert [r["key"] for r in rows] == [" ".join(m.keys).encode() or None for m in messages]
    for row, message in zip(rows, messages, strict=True):
        headers = {header["key"]: header["value"].decode() for header in row["headers"]}
        assert headers == message.properties


def test_properties_are_maps(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng, 80)
    found = [dict(row) for row in numbers(read_all(tmp_path / "s"), "properties")]
    assert found == [m.properties for m in messages]
    for batch in read_all(tmp_path / "s", includeProperties="false"):
        assert "properties" not in batch.schema.names


def test_an_empty_store_has_no_partitions(tmp_path: Path) -> None:
    rocketstore.open(tmp_path / "s").close()
    assert read_all(tmp_path / "s") == []


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"topics": "x"}, "RS_UNKNOWN_OPTION"),
        ({"view": "pulsar"}, "RS_BAD_OPTION"),
        ({"splitBytes": "0"}, "RS_BAD_OPTION"),
        ({"splitBytes": "big"}, "RS_BAD_OPTION"),
        ({"queues": "-1"}, "RS_BAD_OPTION"),
        ({"topicPattern": "("}, "RS_BAD_OPTION"),
        ({"topic": "a", "subscribe": "b"}, "RS_BAD_OPTION"),
        ({"startingOffsets": "first"}, "RS_BAD_OPTION"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "RS_BAD_OPTION"),
        ({"endingOffsets": "earliest"}, "RS_BAD_OPTION"),
        ({"maxBytesPerTrigger": "1m"}, "RS_BAD_OPTION"),
        ({"failOnDataLoss": "maybe"}, "RS_BAD_OPTION"),
        (
            {"startingOffsets": '{"orders": {"9": 0}}'},
            r"RS_NO_TOPIC_THERE\] .* has no queue 9 of 'orders', which startingOffsets names; l",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 99999}}'},
            r"RS_BAD_OPTION\] startingOffsets = 99999: at most \d+, where 'orders'/0 ends",
        ),
        (
            {"endingOffsets": '{"orders": {"0": 99999}}'},
            r"RS_BAD_OPTION\] endingOffsets = 99999: at most \d+, where 'orders'/0 ends",
        ),
        ({"startingTimestamp": "9", "endingTimestamp": "8"}, "RS_BAD_OPTION"),
        (
            {
                "startingOffsets": '{"orders": {"0": 5}}',
                "endingOffsets": '{"orders": {"0": 4, "1": 0}}',
            },
            "RS_BAD_OPTION",
        ),
        ({"topic": "orders,nope"}, "RS_NO_TOPIC_THERE"),
        ({"subscribe": "nope"}, "RS_NO_TOPIC_THERE"),
        ({"assign": '{"nope": [0]}'}, "RS_NO_TOPIC_THERE"),
        ({"subscribe": "orders.v1"}, r"RS_NO_TOPIC_THERE\] .* no queue can have this name"),
        ({"topic": ""}, "RS_BAD_OPTION"),
        ({"topic": " , "}, "RS_BAD_OPTION"),
        ({"assign": "{}"}, "RS_BAD_OPTION"),
        ({"queues": "3,7"}, r"RS_NO_TOPIC_THERE\] .* queue of any topic that is wanted: 7"),
        ({"queues": "7", "topic": "orders"}, "RS_NO_TOPIC_THERE"),
        ({"queues": "7", "topicPattern": "o.*"}, "RS_NO_TOPIC_THERE"),
        ({"queues": '{"events": [0], "nope": [0]}'}, "RS_NO_TOPIC_THERE"),
        ({"assign": '{"orders": [0, 7]}'}, r"RS_NO_TOPIC_THERE\] .* queue of 'orders': 7;"),
        ({"tags": ""}, "RS_BAD_OPTION"),
        ({"tags": "red || "}, "RS_BAD_OPTION"),
        ({"queues": "1.5"}, "RS_BAD_OPTION"),
        ({"queues": "2147483648"}, "RS_BAD_OPTION"),
        ({"assign": '{"orders": "01"}'}, "RS_BAD_OPTION"),
        ({"assign": '{"orders": 0}'}, "RS_BAD_OPTION"),
        ({"assign": '{"orders": [true]}'}, "RS_BAD_OPTION"),
        ({"assign": '{"orders": [Infinity]}'}, "RS_BAD_OPTION"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "RS_BAD_OPTION"),
        ({"startingOffsets": '{"orders": {"0": 1.0}}'}, "RS_BAD_OPTION"),
        ({"path": __file__}, "RS_NO_STORE"),
        ({"path": f"{__file__}/below"}, "RS_NO_STORE"),
        ({"path": "nowhere"}, "RS_NO_STORE"),
        ({"path": ""}, "RS_NO_PATH"),
    ],
)
def test_what_means_nothing_is_refused(
    tmp_path: Path, rng: random.Random, options: dict[str, str], code: str
) -> None:
    make_store(tmp_path / "s", rng, 40)
    with pytest.raises(SparkFaceError, match=rf"^\[{code}"):
        read_all(tmp_path / "s", **options)


@pytest.mark.parametrize("name", ["checkpoint", "rocketstore/checkpoint"])
def test_a_store_that_cannot_be_opened_is_named(
    tmp_path: Path, rng: random.Random, name: str
) -> None:
    """Spark keeps the text of an error alone."""
    root = tmp_path / "s"
    make_store(root, rng, 40)
    (root / name).unlink()
    (root / name).mkdir()
    named = rf"RS_READ_FAILED\] host=\S+ path={root}: .*{name}"
    with pytest.raises(SparkFaceError, match=named):
        read_all(root)
    stream = Progress(ReadOptions.parse({"path": str(root)}, stream=True))
    with pytest.raises(SparkFaceError, match=named):
        stream.initial()


def test_ranges_that_are_empty(tmp_path: Path, rng: random.Random) -> None:
    """What begins where it ends, and topics that are not there by failOnDataLoss=false."""
    root = tmp_path / "s"
    make_store(root, rng, 400)
    here = '{"orders": {"0": 2}}'
    for options in (
        {"startingTimestamp": "9", "endingTimestamp": "9"},
        {"startingOffsets": here, "endingOffsets": here, "topic": "orders", "queues": "0"},
        {"topic": "nope", "failOnDataLoss": "false"},
        {"topic": "orders.v1", "failOnDataLoss": "false"},
        {"queues": "7", "failOnDataLoss": "false"},
        {"topicPattern": "nope.*"},
    ):
        assert read_all(root, **options) == []
    orders = read_all(root, topic="orders")
    assert read_all(root, topic="orders", queues='{"orders": [0, 1, 2, 3], "nope": [9]}') == orders
    assert read_all(root, topic="orders,nope", failOnDataLoss="false") == orders != []


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def test_what_is_not_kept_any_more_is_an_error_or_skipped(
    tmp_path: Path, rng: random.Random
) -> None:
    root = tmp_path / "s"
    messages = make_store(root, rng)
    with rocketstore.open(root) as store:
        begin = store.trim(before_offset=messages[300].physical_offset)
    kept = [m for m in messages if m.physical_offset >= begin]
    assert 0 < len(kept) < len(messages)
    assert numbers(read_all(root)) == [m.physical_offset for m in kept]
    offsets = {"startingOffsets": '{"orders": {"0": 0}}', "topic": "orders", "queues": "0"}
    first = next(m for m in kept if (m.topic, m.queue_id) == ("orders", 0)).queue_offset
    with pytest.raises(SparkFaceError, match=rf"RS_DATA_LOST\] messages 0 … {first - 1} of"):
        read_all(root, **offsets)
    found = numbers(read_all(root, failOnDataLoss="false", **offsets), "queue_offset")
    assert found[0] == first


def test_a_part_that_is_removed_before_its_task_reads_is_named_or_skipped(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    from rocketstore.spark.source.plan import plan_batch, read

    root = tmp_path / "s"
    messages = make_store(root, rng)
    strict = ReadOptions.parse({"path": str(root), "splitBytes": "64k"}, stream=False)
    scans, bounds = plan_batch(strict)
    loose = ReadOptions.parse({"path": str(root), "failOnDataLoss": "false"}, stream=False)
    skipping, _ = plan_batch(loose)
    with rocketstore.open(root) as store:
        begin = store.trim(before_offset=messages[300].physical_offset)
    lost = rf"RS_DATA_LOST\] host=.* path={root} .*\[0, {begin}\) was removed before.*{REMEDY}"
    with pytest.raises(SparkFaceError, match=lost):
        list(read(scans[0], strict, bounds))
    found = numbers([batch for scan in skipping for batch in read(scan, loose, bounds)])
    assert found == [m.physical_offset for m in messages if m.physical_offset >= begin]
    said = rf"host=\S+ path={root} part=(\[\d+, \d+\)): .*=false: (\[\d+, \d+\)) trimmed"
    told = [re.fullmatch(said, text) for text in warnings(caplog)]
    assert [match and match[1] for match in told] == [match and match[2] for match in told]
    assert told and all(told) and f", {begin})" in warnings(caplog)[-1]


def test_damage_is_named_or_skipped(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "s"
    messages = make_store(root, rng)
    victim = next(m for m in messages[200:] if len(m.body) > 20)
    segment = segments(root)[victim.physical_offset // (64 * 1024)]
    content = bytearray(segment.read_bytes())
    content[victim.physical_offset % (64 * 1024) + 92] ^= 0xFF
    segment.write_bytes(content)
    with pytest.raises(SparkFaceError, match=rf"RS_CORRUPT.*{victim.physical_offset}.*; {SKIPS}"):
        read_all(root)
    assert warnings(caplog) == []
    found = numbers(read_all(root, failOnDataLoss="false"))
    [told] = warnings(caplog)
    assert re.match(rf"host=\S+ path={root} part=\[\d+, .*: \[{victim.physical_offset}, ", told)
    assert found == [
        m.physical_offset for m in messages if m.physical_offset != victim.physical_offset
    ]


def test_a_segment_that_is_gone_before_the_task_reads_is_named(
    tmp_path: Path, rng: random.Random
) -> None:
    from rocketstore.spark.source.plan import plan_batch, read

    root = tmp_path / "s"
    make_store(root, rng)
    options = ReadOptions.parse({"path": str(root), "splitBytes": "64k"}, stream=False)
    scans, bounds = plan_batch(options)
    segments(root)[1].unlink()
    with pytest.raises(SparkFaceError, match=re.escape(f"path={root}")):
        for scan in scans:
            list(read(scan, options, bounds))


@pytest.mark.parametrize("failing", ["true", "false"])
@pytest.mark.parametrize("left", ["nothing", "an empty mount", "an empty log"])
def test_a_host_that_does_not_see_the_store_is_named(
    tmp_path: Path, rng: random.Random, failing: str, left: str
) -> None:
    """It was told of damage, and with failOnDataLoss=false the rows were left out in silence."""
    from rocketstore.spark.jobs.audit import audit_part
    from rocketstore.spark.jobs.reading import coded_rows
    from rocketstore.spark.source.plan import plan_batch, read

    root = tmp_path / "s"
    make_store(root, rng, 60)
    options = ReadOptions.parse({"path": str(root), "failOnDataLoss": failing}, stream=False)
    [scan], bounds = plan_batch(options)
    root.rename(tmp_path / "elsewhere")
    if left != "nothing":
        (root / "commitlog" if left == "an empty log" else root).mkdir(parents=True)
    text = rf"^\[RS_SEGMENT_UNREACHABLE\] host=\S+ path={root} part=\[0, .*every executor must see"
    with pytest.raises(SparkFaceError, match=text):
        list(read(scan, options, bounds))
    with pytest.raises(SparkFaceError, match=text):
        list(coded_rows(audit_part, scan))
