"""What the sink makes of columns as Kafka's jobs and our own source give them, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.staging import Routing, encode_batch, stage

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")

MAP = pa.map_(pa.string(), pa.string())
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DROP = Routing(topic="t", drop_bad_rows=True)


def put(root: Path, frames: Any) -> list[rocketstore.Message]:
    with rocketstore.open(root, durability="os") as store:
        store.put_frames(frames)
        found = [m for topic in store.topics(system=True) for m in store.consumer(topic)]
    return sorted(found, key=lambda m: m.physical_offset)


def own(message: rocketstore.Message) -> dict[str, str]:
    return {k: v for k, v in message.properties.items() if k not in ("TAGS", "KEYS", "__CRC32#")}


def header(*items: tuple[str, bytes | None]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in items]


def test_the_option_topic_wins(tmp_path: Path) -> None:
    """As in Kafka's sink: a copy of a topic would go back into it else."""
    columns = {"body": ["a", "b", "c"], "topic": ["source", None, "no/topic"]}
    frames, count = encode_batch(pa.RecordBatch.from_pydict(columns), Routing(topic="copy"))
    assert count == 3 and {m.topic for m in put(tmp_path / "s", frames)} == {"copy"}


@pytest.mark.parametrize(
    ("routing", "queues"),
    [
        (Routing(topic="t"), [0, 3, 0]),
        (Routing(topic="t", queue_id=5), [5, 3, 5]),
        (Routing(topic="t", queues=4), [2, 3, 0]),
    ],
)
def test_a_null_partition_falls_to_the_options(
    tmp_path: Path, routing: Routing, queues: list[int]
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"value": ["a", "b", "c"], "partition": pa.array([None, 3, None], pa.int32())}
    )
    frames, _ = encode_batch(batch, routing, first_row=2)
    assert [m.queue_id for m in put(tmp_path / "s", frames)] == queues


def test_headers_become_properties(tmp_path: Path) -> None:
    """Values are text; of headers of one name the last one counts; what is said by a column is left out."""
    headers = [
        header(("skipped", b"1")),
        header(("n", "ü".encode()), ("n", b"2"), ("none", None), ("empty", b""), ("KEYS", b"no")),
        None,
        header(("TAGS", b"red"), ("m", b"3"), ("WAIT", b"true")),
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "value": [b"0", b"a", b"b", b"c"],
            "key": pa.array([None, b"k", None, None], pa.binary()),
            "properties": pa.array([None, [("n", "0"), ("p", "1")], None, None], MAP),
            "headers": pa.array(headers, HEADERS),
            "offset": pa.array([4, 5, 6, 7], pa.int64()),
            "timestamp": pa.array([0, 0, 0, 0], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([1, 1, 1, 1], pa.int32()),
        }
    )
    frames, count = encode_batch(batch.slice(1), Routing(topic="t"))
    first, second, third = put(tmp_path / "s", frames)
    assert (count, own(first), first.keys) == (3, {"n": "2", "p": "1"}, ("k",))
    assert (own(second), second.tags, second.keys) == ({}, None, ())
    assert (own(third), third.tags) == ({"m": "3"}, "red")


def test_tags_and_keys_out_of_properties(tmp_path: Path) -> None:
    """The view of the RocketMQ connector has no columns for them."""
    maps = pa.array([[("TAGS", "red"), ("KEYS", "a b"), ("n", "1")], []], MAP)
    batch = pa.RecordBatch.from_pydict(
        {"body": ["a", "b"], "queueId": pa.array([2, 2], pa.int32()), "properties": maps}
    )
    first, second = put(tmp_path / "s", encode_batch(batch, Routing(topic="t"))[0])
    assert (first.queue_id, first.tags, first.keys, own(first)) == (
        2, "red", ("a", "b"), {"n": "1"},
    )  # fmt: skip
    assert (second.tags, second.keys) == (None, ())


def test_columns_of_the_source_are_taken_or_left_aside(tmp_path: Path) -> None:
    """Bits of `sys_flag` that say that a body is compressed stay, those of transactions do not."""
    ints = {
        name: pa.array([value, None], pa.int32())
        for name, value in {"flag": 7, "sys_flag": 0x30D, "reconsume_times": 2}.items()
    }
    batch = pa.RecordBatch.from_pydict(
        {
            "body": [b"a", b"b"],
            **ints,
            "queue_offset": pa.array([70, 71], pa.int64()),
            "physical_offset": pa.array([0, 100], pa.int64()),
            "store_timestamp": pa.array([0, 0], pa.timestamp("us", "UTC")),
            "store_host": ["h:1", "h:1"],
            "born_host": ["h:1", "h:1"],
            "msg_id": ["x", "y"],
        }
    )
    first, second = put(tmp_path / "s", encode_batch(batch, Routing(topic="t"))[0])
    assert (first.flag, first.sys_flag, first.reconsume_times) == (7, 0x301, 2)
    assert (second.flag, second.sys_flag, second.reconsume_times) == (0, 0, 0)
    assert [first.queue_offset, second.queue_offset] == [0, 1]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"keys": [["x"], ["x", None]]}, "keys holds a null"),
        ({"keys": [["x", "y"], ["x", "y z"]]}, "a key in keys holds a blank"),
        ({"keys": [[], ["y z", None]]}, "keys holds a null"),
        ({"headers": pa.array([[], header(("h", b"\xff"))], HEADERS)}, "header 'h'.*no UTF-8"),
    ],
)
def test_each_bad_row_is_named_or_left_out(columns: dict[str, Any], reason: str) -> None:
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b"], **columns})
    with pytest.raises(SparkFaceError, match=rf"RS_BAD_ROW\] row 11 .*{reason}"):
        encode_batch(batch, Routing(topic="t"), first_row=10)
    assert encode_batch(batch, DROP, first_row=10)[1] == 1


def test_large_and_view_types(tmp_path: Path) -> None:
    """Spark gives them with spark.sql.execution.arrow.useLargeVarTypes; a body need not be text."""
    text = pa.large_string()
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"no \xff text", b"b"], pa.large_binary()),
            "topic": pa.array(["t", "u"], pa.string_view()),
            "tags": pa.array(["red", None], text),
            "keys": pa.array([["a", "b"], None], pa.large_list(text)),
            "properties": pa.array([[("n", "1")], None], pa.map_(text, text)),
            "headers": pa.array(
                [header(("h", b"2")), None],
                pa.list_(pa.struct([("key", text), ("value", pa.large_binary())])),
            ),
            "shard_key": pa.array(["s", None], text),
        }
    )
    staged = stage([batch], str(tmp_path / "staged"), Routing())
    assert staged is not None and staged.largest_body == 9
    first, second = put(tmp_path / "s", Path(staged.path).read_bytes())
    assert (first.body, first.topic, first.tags) == (b"no \xff text", "t", "red")
    assert (first.keys, own(first)) == (("a", "b"), {"n": "1", "h": "2", "__SHARDINGKEY": "s"})
    assert (second.topic, second.keys) == ("u", ())


def test_a_directory_that_cannot_be_staged_in_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = os.fspath(tmp_path / "file" / "staged")
    batch = pa.RecordBatch.from_pydict({"body": ["a"]})
    with pytest.raises(SparkFaceError, match=rf"RS_WRITE_FAILED\] host=\S+ path={place}: "):
        stage([batch], place, Routing(topic="t"))
