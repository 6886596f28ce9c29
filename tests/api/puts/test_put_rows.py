"""Rows that differ in more than their bodies: put_columns with further columns, store.put_batch."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
import rocketstore.aio
from rocketstore import (
    ConfigError,
    InvalidTopicError,
    MessageRejectedError,
    MessageTooLargeError,
    NewMessage,
    PropertiesTooLargeError,
    Store,
)
from tests.support.log_records import records
from tests.support.small_store import SEGMENT, dispatched, everything, open_small

PLAIN = {"durability": "os", "record_crc": False}
BODIES = [b"%03d" % n * (n % 29) for n in range(60)]
TAGS = [("paid", None, "", "ü")[n % 4] for n in range(60)]
KEYS: list[Any] = [(f"k{n}", None, [f"a{n}", "b"], "")[n % 4] for n in range(60)]
QUEUES = [n % 3 for n in range(60)]
BORN = [n + 1_700_000_000_000 for n in range(60)]
OFFSETS = np.cumsum([0, *map(len, BODIES)])


@pytest.mark.parametrize("constants", [{}, {"tags": "w", "keys": ["x", "y"]}])
@pytest.mark.parametrize("properties", [None, {"region": "eu"}])
@pytest.mark.parametrize("columns", ["tags", "keys", "queues", "born", "all"])
def test_rows_are_stored_as_puts_store_them(
    tmp_path: Path, columns: str, properties: Any, constants: Any
) -> None:
    """The same bytes in several segments, whatever is a column; and the result names each row's place."""
    every = columns == "all"
    given: dict[str, Any] = {"properties": properties, "flag": 3}
    if every or columns == "tags":
        given["row_tags"] = TAGS
    if every or columns == "keys":
        given["row_keys"] = KEYS
    if every or columns == "queues":
        given["queue_ids"] = np.array(QUEUES, np.uint8)
    if every or columns == "born":
        given["born_timestamps_ms"] = BORN
    else:
        given["born_time"] = 7
    with open_small(tmp_path / "a", **PLAIN) as store:
        writer = store.writer("orders", queues=3, **constants)
        result = writer.put_columns((OFFSETS, b"".join(BODIES)), **given)
        assert result.count == 60 and result.end_offset == store.end_offset > 2 * SEGMENT
        found = [store.get(offset) for offset in result.physical_offsets]
        assert [m.queue_id for m in found] == result.queue_ids
        assert [m.queue_offset for m in found] == list(result.queue_offsets)
        assert pickle.loads(pickle.dumps(result)) == result
        rows = records(store)
    with open_small(tmp_path / "b", **PLAIN) as store:
        for n, body in enumerate(BODIES):
            names: dict[str, Any] = {
                "tags": TAGS[n] or None if "row_tags" in given else constants.get("tags"),
                "keys": KEYS[n] or None if "row_keys" in given else constants.get("keys"),
            }
            writer = store.writer("orders", queue_id=QUEUES[n] if "queue_ids" in given else 0)
            born = BORN[n] if "born_timestamps_ms" in given else 7
            writer.put(body, properties=properties, flag=3, born_time=born, **names)
        assert rows == records(store)


def test_rows_take_the_writers_constants_where_no_column_is(store: Store) -> None:
    writer = store.writer("orders", tags="w", keys="k")
    writer.put_columns(([0, 1, 2], b"ab"), row_tags=["t", None])
    writer.put_columns(([0, 1, 2], b"cd"), row_keys=["l m", None])
    found = [(m.tags, m.keys) for m in everything(dispatched(store))]
    assert found == [("t", ("k",)), (None, ("k",)), ("w", ("l", "m")), ("w", ())]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"row_tags": ["a"]}, MessageRejectedError, "row_tags: 1 rows, expected 2"),
        ({"row_tags": "ab"}, TypeError, "row_tags: expected one text for each row"),
        ({"row_tags": ["a", 5]}, TypeError, "row_tags: row 1: expected str, not int"),
        ({"row_tags": [["a", "b"], "c"]}, TypeError, "row_tags: row 0: expected str, not list"),
        ({"row_tags": ["a", "a||b"]}, MessageRejectedError, "row 1: tags: one tag"),
        ({"row_tags": ["a", "b "]}, MessageRejectedError, "row 1: tags: one tag"),
        ({"row_tags": ["a", "b\x01c"]}, MessageRejectedError, "row 1: tags: holds a control"),
        ({"row_tags": ["\ud800", ""]}, MessageRejectedError, "row_tags: row 0: cannot be UTF-8"),
        ({"row_keys": ["a", "\x02"]}, MessageRejectedError, "row 1: keys: holds a control"),
        ({"row_keys": ["a", ["b c"]]}, MessageRejectedError, "row_keys: row 1: .*blanks"),
        ({"row_keys": ["a", "k" * 40_000]}, PropertiesTooLargeError, "row 1: properties"),
        ({"queue_ids": [0, 3]}, MessageRejectedError, "queue_ids: row 1: 3: 0 … 2"),
        ({"queue_ids": [-1, 0]}, MessageRejectedError, "queue_ids: row 0: -1"),
        ({"queue_ids": [0, [1, 2]]}, MessageRejectedError, "queue_ids: setting an array element"),
        ({"queue_ids": [0.0, 1.0]}, MessageRejectedError, "queue_ids: dtype float64"),
        (
            {"queue_ids": np.ma.array([0, 0], mask=[0, 1])},
            MessageRejectedError,
            "queue_ids: row 1 is masked",
        ),
        ({"queue_ids": [2**32, 0]}, MessageRejectedError, "queue_ids: row 0: 4294967296"),
        ({"born_timestamps_ms": [1]}, MessageRejectedError, "born_timestamps_ms: .*expected 2"),
        (
            {"born_timestamps_ms": [0, -(2**63)]},
            MessageRejectedError,
            "row 1: -9223372036854775808",
        ),
        ({"tags": "a", "row_tags": ["a", "b"]}, TypeError, "tags: for each row, or the same"),
        ({"keys": "a", "row_keys": ["a", "b"]}, TypeError, "keys: for each row, or the same"),
        ({"queue_ids": [0, 0], "shard_key": "s"}, TypeError, "shard_key"),
        ({"row_tags": ["a", "b"], "properties": {"KEYS": "x"}}, MessageRejectedError, "reserved"),
        ({"row_tags": ["a", "b"], "timeout_s": float("nan")}, ValueError, "timeout_s"),
    ],
)
def test_all_rows_are_checked_before_the_first(
    given: dict[str, Any], error: type[Exception], said: str, store: Store
) -> None:
    with pytest.raises(error, match=said):
        store.writer("orders", queues=3).put_columns(([0, 1, 2], b"ab"), **given)
    assert store.end_offset == 0


@pytest.mark.store(max_message_size_bytes=10)
def test_a_row_that_is_too_large_is_named(store: Store, writer: rocketstore.Writer) -> None:
    with pytest.raises(MessageTooLargeError, match="row 2: body: 11 bytes, at most 10"):
        writer.put_columns(([0, 10, 20, 31], b"x" * 31), row_tags=["a"] * 3)
    assert store.end_offset == 0


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary"])
def test_columns_of_arrow(tmp_path: Path, kind: str) -> None:
    """Slices, too: their offsets do not begin at 0. Null stands for no text, and is no body."""
    pa = pytest.importorskip("pyarrow")
    bodies = pa.array(["no", "one", "", "three"], getattr(pa, kind)()).slice(1)
    tags = pa.array(["x", "a", None, "b"], pa.string()).slice(1)
    with open_small(tmp_path) as store:
        writer = store.writer("orders", queues=3)
        writer.put_columns(bodies)
        writer.put_columns(
            bodies, row_tags=tags, row_keys=tags, queue_ids=pa.array([0, 0, 0], pa.int32())
        )
        found = [(m.body, m.tags, m.keys) for m in everything(dispatched(store))]
        assert found[:3] == [(b"one", None, ()), (b"", None, ()), (b"three", None, ())]
        assert found[3:] == [(b"one", "a", ("a",)), (b"", None, ()), (b"three", "b", ("b",))]
        end = store.end_offset
        with pytest.raises(MessageRejectedError, match="bodies: row 1 is null"):
            writer.put_columns(pa.array([b"a", None]))
        with pytest.raises(MessageRejectedError, match="bodies: Arrow's type int64"):
            writer.put_columns(pa.array([1, 2]))
        with pytest.raises(TypeError, match="bodies: expected a pair"):
            writer.put_columns(b"abc")
        assert store.end_offset == end


MESSAGES = [
    NewMessage("orders", b"1", tags="paid", keys=("a", "b"), born_time=1),
    NewMessage("orders", bytearray(b"2"), 5, properties={"region": "eu"}, flag=9, born_time=2),
    NewMessage("refunds", b"", 1, shard_key="ada", born_time=3),
    NewMessage("orders", b"4", born_time=4),
]


def test_a_batch_of_several_topics(tmp_path: Path) -> None:
    """The same bytes as of puts, one behind another, and one result."""
    with open_small(tmp_path / "a", **PLAIN) as store:
        result = store.put_batch(iter(MESSAGES))
        assert (result.count, result.queue_ids, list(result.queue_offsets)) == (
            4,
            [0, 5, 1, 0],
            [0, 0, 0, 1],
        )
        batch = records(store)
        assert [m.body for m in dispatched(store).consumer("orders", queue_id=0)] == [b"1", b"4"]
    with open_small(tmp_path / "b", **PLAIN) as store:
        for m in MESSAGES:
            store.writer(m.topic, queue_id=m.queue_id).put(
                m.body,
                tags=m.tags,
                keys=m.keys,
                properties=m.properties,
                flag=m.flag,
                born_time=m.born_time,
                shard_key=m.shard_key,
            )
        assert batch == records(store)


def test_a_batch_keeps_its_promise(store: Store) -> None:
    result = store.put_batch(NewMessage("t", b"%d" % n, n % 3) for n in range(20))
    assert result.durability == "disk" and store.flushed_offset >= result.end_offset
    assert store.put_batch(MESSAGES, durability="memory").durability == "memory"
    message = store.get(result.physical_offset)
    assert 0 <= message.store_timestamp_ms - message.born_timestamp_ms < 60_000


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        (NewMessage("../evil", b""), InvalidTopicError, "evil"),
        (NewMessage("t", b"", -1), ConfigError, "queue_id"),
        (NewMessage("t", None), TypeError, "body: expected bytes"),  # type: ignore[arg-type]
        (NewMessage("t", b"", tags="a||b"), MessageRejectedError, "one tag"),
        (NewMessage("t", b"", keys="a b"), MessageRejectedError, "blank"),
        (NewMessage("t", b"", properties={"KEYS": "a"}), MessageRejectedError, "reserved"),
        (NewMessage("t", b"x" * 2000), MessageTooLargeError, "2000"),
        (NewMessage([], b""), TypeError, "unhashable"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.store(max_message_size_bytes=1000)
def test_a_message_that_is_wrong_is_named_and_nothing_is_stored(
    wrong: NewMessage, error: type[Exception], said: str, store: Store
) -> None:
    with pytest.raises(error, match=said) as caught:
        store.put_batch([*MESSAGES, wrong, *MESSAGES])
    assert caught.value.__notes__ == ["messages[4]; nothing was stored"]
    for several, said in (
        ([b"a"], r"messages\[0\]: expected NewMessage, not bytes"),
        (5, "messages: expected several NewMessage, not int"),
    ):
        with pytest.raises(TypeError, match=said):
            store.put_batch(several)  # type: ignore[arg-type]
    assert store.put_batch([]).count == 0
    with pytest.raises(ValueError, match="timeout_s"):
        store.put_batch(MESSAGES, timeout_s=float("nan"))
    assert store.end_offset == 0


def test_a_batch_larger_than_a_segment_is_refused(store: Store) -> None:
    with pytest.raises(MessageTooLargeError, match="a file of the log takes at most"):
        store.put_batch([NewMessage("t", b"x" * 500, n) for n in range(20)])
    assert store.put_batch([NewMessage("t", b"x" * 500, n) for n in range(5)]).count == 5
    assert store.put_batch([NewMessage("t", b"x" * 500, n) for n in range(5)]).count == 5
    found = everything(dispatched(store), "t")
    assert len(found) == 10 and {m.physical_offset // SEGMENT for m in found} == {0, 1}


def test_in_a_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with rocketstore.aio.open(tmp_path / "s") as store:
            result = await store.put_batch(MESSAGES)
            assert (result.count, result.durability) == (4, "disk")
            writer = store.writer("orders", queues=3)
            result = await writer.put_columns(
                ([0, 1, 2], b"ab"), row_tags=["a", None], queue_ids=[2, 1]
            )
            assert result.queue_ids == [2, 1]
            assert (await store.get(result.physical_offset)).tags == "a"
            with pytest.raises(TypeError, match="NewMessage"):
                await store.put_batch([b"a"])  # type: ignore[list-item]

    asyncio.run(main())
