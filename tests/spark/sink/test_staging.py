"""Arrow record batches to frames, without Spark."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.bad_rows import BadRows, discard_bad_rows, keep_bad_rows
from rocketstore.spark.sink.staging import ROWS_MAX, Routing, encode_batch, parts, stage

pa = pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")

MAP = pa.map_(pa.string(), pa.string())
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BORN = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)


def put(root: Path, frames: bytes) -> list[rocketstore.Message]:
    with rocketstore.open(root, durability="os") as store:
        store.put_frames(frames)
        found = [m for topic in store.topics(system=True) for m in store.consumer(topic)]
    return sorted(found, key=lambda m: m.physical_offset)


def batch_of(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def test_every_column_of_a_slice(tmp_path: Path, rng: random.Random) -> None:
    """A slice shares its buffers with what it was cut from: offsets do not begin at 0."""
    rows = 200
    bodies = [rng.randbytes(rng.randrange(50)) for _ in range(rows)]
    maps = [
        [("n", str(n)), ("none", None), ("empty", ""), ("TAGS", "other"), ("WAIT", "true")][n % 6 :]
        for n in range(rows)
    ]
    maps[30] = None
    batch = batch_of(
        body=pa.array(bodies, pa.binary()),
        topic=pa.array([f"t{n % 3}" for n in range(rows)]),
        queue_id=pa.array([n % 5 for n in range(rows)], pa.int32()),
        tags=pa.array([None if n % 4 else f"tag{n}" for n in range(rows)]),
        keys=pa.array([["a", f"k{n}"] if n % 2 else None for n in range(rows)]),
        properties=pa.array(maps, MAP),
        born_timestamp=pa.array(
            [BORN + datetime.timedelta(milliseconds=n) for n in range(rows)],
            pa.timestamp("us", "UTC"),
        ),
    )
    frames, count = encode_batch(batch.slice(17, 150), Routing())
    messages = put(tmp_path / "s", frames)
    assert count == len(messages) == 150
    for number, message in enumerate(messages, 17):
        assert (message.body, message.topic) == (bodies[number], f"t{number % 3}")
        assert message.queue_id == number % 5
        assert message.tags == (None if number % 4 else f"tag{number}")
        assert message.keys == (("a", f"k{number}") if number % 2 else ())
        assert message.born_time == BORN + datetime.timedelta(milliseconds=number)
        plain = {k: v for k, v in message.properties.items() if k in ("n", "none", "empty", "WAIT")}
        assert plain == ({"n": str(number)} if number % 6 == 0 and number != 30 else {})


def test_kafkas_names_and_large_types(tmp_path: Path) -> None:
    batch = batch_of(
        value=pa.array(["x", "ü"], pa.large_string()),
        key=pa.array([b"k", None], pa.binary()),
        partition=pa.array([2, 2], pa.int32()),
    )
    frames, _ = encode_batch(batch, Routing(topic="t"))
    first, second = put(tmp_path / "s", frames)
    assert (first.body, second.body, first.keys) == (b"x", "ü".encode(), ("k",))
    assert [first.queue_id, first.queue_offset, second.queue_offset] == [2, 0, 1]
    assert abs(first.born_timestamp_ms - first.store_timestamp_ms) < 60_000


def test_rows_without_a_queue_take_turns(tmp_path: Path) -> None:
    batch = batch_of(body=["x"] * 5)
    frames, _ = encode_batch(batch, Routing(topic="t", queues=3), first_row=2)
    assert [m.queue_id for m in put(tmp_path / "s", frames)] == [2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"body": ["a", None]}, "row 11 .*body is null"),
        ({"body": ["a", "b"], "topic": ["t", None]}, "row 11 .*topic is null"),
        ({"body": ["a", "b" * 20], "topic": ["t", "t"]}, "row 11 .*: body: 20 bytes, at most"),
        (
            {"body": ["a", "b"], "topic": ["t", "t"], "tags": ["x", "\x01"]},
            "row 11 .*: tags: holds a control",
        ),
        ({"body": ["a", "b"], "topic": ["t", "a/b"]}, "row 11 .*not allowed"),
        ({"body": ["a", "b"], "topic": ["t", "t" * 128]}, "row 11 .*128 bytes"),
        ({"body": ["a", "b"], "topic": ["t", "SCHEDULE_TOPIC_XXXX"]}, "row 11 .*delay"),
        (
            {"body": ["a", "b"], "topic": ["t", "t"], "queue_id": pa.array([0, -1], pa.int32())},
            "below 0",
        ),
        ({"body": ["a", "b"], "topic": ["t", "t"], "keys": [["a"], [None]]}, "null"),
        (
            {
                "body": ["a", "b"],
                "topic": ["t", "t"],
                "sys_flag": pa.array([None, 0x1C0], pa.int32()),
            },
            "row 11 .*inner batch, several messages",
        ),
    ],
)
def test_bad_rows_are_named(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(SparkFaceError, match=rf"RS_BAD_ROW\] .*{reason}"):
        encode_batch(batch_of(**columns), Routing(max_body_bytes=10), first_row=10)


#: What only a store sets, or what asks it for something that is done (format 19).
OF_ONE_STORE = (
    *("REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "__transactionId__", "RS_TRANSACTION"),
    *("TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "DELAY", "__DELAYED", "__ENDS"),
    *("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "__EVERY"),
    *("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_ROLL_LABEL"),
    *("TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "INNER_NUM", "INNER_BASE", "INNER_X"),
    *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "DUP_INFO", "MIN_OFFSET", "MAX_OFFSET"),
    *("__CRC32#", "x__CRC32#", "WAIT"),
)


@pytest.mark.parametrize("column", ["properties", "headers"])
def test_properties_of_one_store_are_left_out(tmp_path: Path, column: str) -> None:
    """A row that was read has them; the store that gets it makes its own."""
    names = (*OF_ONE_STORE, "UNIQ_KEY", "RETRY_TOPIC", "x")
    if column == "properties":
        given = pa.array([[(name, "3") for name in names]], MAP)
    else:
        given = pa.array([[{"key": name, "value": b"3"} for name in names]], HEADERS)
    frames, count = encode_batch(batch_of(body=["a"], **{column: given}), Routing(topic="t"))
    [found] = put(tmp_path / "s", frames)
    kept = {name for name in found.properties if name != "__CRC32#"}  # of the store that took it
    assert (count, kept) == (1, {"UNIQ_KEY", "RETRY_TOPIC", "x"})


SYSTEM_TOPICS = (
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"),
    *("rmq_sys_wheel_timer", "rmq_sys_rocketstore_transactions", "OFFSET_MOVED_EVENT"),
)


@pytest.mark.parametrize("topic", SYSTEM_TOPICS)
def test_rows_of_system_topics_are_bad_rows(tmp_path: Path, topic: str) -> None:
    """The next open of the store would deliver them, or execute them."""
    batch = batch_of(body=["a", "b"], topic=["t", topic])
    with pytest.raises(SparkFaceError, match=rf"RS_BAD_ROW\] row 11 .*{topic}.*another topic"):
        encode_batch(batch, Routing(), first_row=10)
    frames, count = encode_batch(batch, Routing(drop_bad_rows=True))
    assert (count, [m.topic for m in put(tmp_path / "s", frames)]) == (1, ["t"])
    frames, count = encode_batch(batch, Routing(topic="copy"))
    assert count == 2


def test_nothing_is_staged_for_no_row_and_after_a_fault(tmp_path: Path) -> None:
    drop = Routing(topic="t", drop_bad_rows=True)
    assert stage([batch_of(body=pa.array([None], pa.string()))], str(tmp_path), drop) is None
    with pytest.raises(SparkFaceError):
        stage([batch_of(body=["a"]), batch_of(body=pa.array([None], pa.string()))],
              str(tmp_path), Routing(topic="t"))  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    staged = stage([batch_of(body=["a" * 1000] * 30_000)], str(tmp_path), drop)
    assert staged is not None and staged.rows == 30_000 and len(staged.chunks) > 2
    assert Path(staged.path).stat().st_size == staged.size
    assert staged.largest_body == 1000


def test_rows_are_spread_by_shard_key_as_put_does(tmp_path: Path, rng: random.Random) -> None:
    keys = [rng.choice([None, "", "u1", "ü2", "u3" * 9]) for _ in range(60)]
    maps = pa.array([[("n", str(n)), ("__SHARDINGKEY", "other")] for n in range(60)], MAP)
    batch = batch_of(body=["x"] * 60, shard_key=pa.array(keys, pa.string()), properties=maps)
    frames, _ = encode_batch(batch, Routing(topic="t", queues=7))
    found = put(tmp_path / "s", frames)
    with rocketstore.open(tmp_path / "p") as store:
        writer = store.writer("t", queues=7)
        expected = [writer.put(b"x", shard_key=key).queue_id if key else None for key in keys]
    by_number = {int(m.properties["n"]): m for m in found}
    for number, (key, queue_id) in enumerate(zip(keys, expected, strict=True)):
        message = by_number[number]
        assert message.queue_id == (number % 7 if queue_id is None else queue_id)
        assert message.properties.get("__SHARDINGKEY") == (key or None)
    alone = batch_of(body=["x"], shard_key=["u1"])
    frames, _ = encode_batch(alone, Routing(topic="t", queue_id=5))
    [message] = put(tmp_path / "alone", frames)
    assert (message.queue_id, message.properties["__SHARDINGKEY"]) == (5, "u1")


@pytest.mark.parametrize("kind", ["string", "binary", "array"])
@pytest.mark.parametrize("name", ["key", "keys"])
def test_rows_are_spread_by_key_as_kafka_s_sink_does(
    tmp_path: Path, rng: random.Random, name: str, kind: str
) -> None:
    """One key, one queue: its order is kept. It was spread over all of them."""
    keys = [rng.choice([None, "", "u1", "ü2", "u3" * 9, "u4 x"]) for _ in range(60)]
    column = {
        "string": lambda: pa.array(keys, pa.string()),
        "binary": lambda: pa.array([k and k.encode() for k in keys], pa.binary()),
        "array": lambda: pa.array([k and k.split() for k in keys], pa.list_(pa.string())),
    }[kind]()
    batch = batch_of(body=[str(n) for n in range(60)], **{name: column})
    frames, _ = encode_batch(batch, Routing(topic="t", queues=7), first_row=3)
    found = {int(m.body): m.queue_id for m in put(tmp_path / "s", frames)}
    with rocketstore.open(tmp_path / "p") as store:
        writer = store.writer("t", queues=7)
        for number, key in enumerate(keys):
            expected = writer.put(b"x", shard_key=key).queue_id if key else (number + 3) % 7
            assert found[number] == expected
    frames, _ = encode_batch(batch, Routing(topic="t", queues=7, by_key=False))
    in_turns = {int(m.body): m.queue_id for m in put(tmp_path / "turns", frames)}
    assert in_turns == {n: n % 7 for n in range(60)}
    frames, _ = encode_batch(batch, Routing(topic="t", queue_id=2))
    assert {m.queue_id for m in put(tmp_path / "one", frames)} == {2}


def test_a_null_body_that_is_a_tombstone(tmp_path: Path) -> None:
    batch = batch_of(body=["a", None, "c"], keys=["k", "k", None])
    frames, count = encode_batch(batch, Routing(topic="t", null_is_empty=True))
    assert count == 3
    assert [m.body for m in put(tmp_path / "s", frames)] == [b"a", b"", b"c"]
    with pytest.raises(SparkFaceError, match="RS_BAD_ROW.*row 1 .*body is null"):
        encode_batch(batch, Routing(topic="t"))


def test_what_chooses_a_queue(tmp_path: Path) -> None:
    """The queue id of a row, then its shard key, then its key, then its turn."""
    batch = batch_of(
        body=["0", "1", "2", "3"],
        queue_id=pa.array([6, None, None, None], pa.int32()),
        shard_key=["s", "s", None, ""],
        keys=["k", "k", "k", None],
    )
    frames, _ = encode_batch(batch, Routing(topic="t", queues=7))
    found = {int(m.body): m.queue_id for m in put(tmp_path / "s", frames)}
    of = rocketstore.shard_queue_id
    assert found == {0: 6, 1: of("s", 7), 2: of("k", 7), 3: 3}
    assert of("s", 7) != of("k", 7)
    # A key that no column says chooses nothing.
    maps = pa.array([[("KEYS", "k")]] * 3, MAP)
    frames, _ = encode_batch(
        batch_of(body=["x"] * 3, properties=maps), Routing(topic="t", queues=7)
    )
    assert [m.queue_id for m in put(tmp_path / "p", frames)] == [0, 1, 2]


def test_bad_rows_are_kept_with_their_reason(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    batch = batch_of(
        body=["fine", None, "too large " * 9, "b", "c", "d"],
        topic=["t", "t", "t", "a/b", None, "t"],
        queue_id=pa.array([0, 0, 0, 0, 0, -2], pa.int32()),
    )
    kept = BadRows(str(tmp_path / "bad"))
    frames, count = encode_batch(batch, Routing(max_body_bytes=10, drop_bad_rows=True), 0, kept)
    assert count == 1 and [m.body for m in put(tmp_path / "s", frames)] == [b"fine"]
    path = kept.finish()
    assert path is not None
    keep_bad_rows(path, "any/../text", 1, 0)
    [kept_as] = (tmp_path / "bad").glob("*.parquet")
    found = pq.read_table(kept_as, partitioning=None).to_pylist()
    reasons = {row["body"] or row["topic"]: row["bad_row_reason"] for row in found}
    assert len(found) == 5 and reasons["t"] == "body is null" and reasons["c"] == "topic is null"
    assert "not allowed" in reasons["b"] and "below 0" in reasons["d"]
    again = BadRows(str(tmp_path / "bad"))  # the commit is run once more
    again.add(batch.slice(1, 1), ["body is null"])
    path = again.finish()
    assert path is not None
    keep_bad_rows(path, "any/../text", 1, 0)
    discard_bad_rows(path)
    failed = BadRows(str(tmp_path / "bad"))
    failed.add(batch.slice(1, 1), ["body is null"])
    failed.abandon()
    assert list((tmp_path / "bad").rglob("*.parquet")) == [kept_as]
    assert BadRows(str(tmp_path / "none")).finish() is None and not (tmp_path / "none").exists()


@pytest.mark.parametrize("rows", [0, 1, ROWS_MAX, ROWS_MAX + 1, 2 * ROWS_MAX])
def test_a_chunk_has_a_bound_of_rows(rows: int) -> None:
    """Records of empty bodies are many times larger than their rows."""
    sizes = [part.num_rows for part in parts(batch_of(body=[""] * rows))]
    assert sum(sizes) == rows
    assert all(size <= ROWS_MAX for size in sizes)
