"""Columns of messages that a store takes itself: any topics and queues, as frames of them would be put."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore import (
    InvalidTopicError,
    Message,
    MessageRejectedError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    Store,
    StoreConfig,
    StoreReadOnlyError,
    encode_frames,
)
from rocketstore.tools import verify
from tests.support.text_columns import column
from tests.support.verifying import faults

TOPICS = ["x", "y", "z"]
Column = tuple[Any, Any]


def some_columns(rng: random.Random, count: int) -> dict[str, Any]:
    """All that a row may have; each of them may be missing."""
    entries = np.cumsum([0, *(rng.randrange(4) for _ in range(count))])
    total = int(entries[-1])
    names = [rng.choice([b"region", b"n", b"__SHARDINGKEY"]) + b"%d" % n for n in range(total)]
    given: dict[str, Any] = {
        "topic_rows": np.array([rng.randrange(3) for _ in range(count)]),
        "queue_ids": np.array([rng.randrange(4) for _ in range(count)]),
        "tags": column([rng.choice([b"", b"a", "ü".encode()]) for _ in range(count)]),
        "keys": column([rng.choice([b"", b"k%d" % n, b"k l"]) for n in range(count)]),
        "properties": (entries, column(names), column([b"v%d" % n for n in range(total)])),
        "flags": np.array([rng.randrange(-9, 9) for _ in range(count)]),
        "sys_flags": rng.choice([0, 0x301]),
        "reconsume_times": np.array([rng.randrange(3) for _ in range(count)]),
        "born_host": rng.choice(["10.1.2.3:99", "[fd00::1]:7"]),
    }
    return {
        "topics": TOPICS,
        "born_timestamps_ms": np.arange(count) + 1_700_000_000_000,
        **{name: column for name, column in given.items() if rng.random() < 0.7},
    }


def records(store: Store, begin: int) -> list[tuple[Any, ...]]:
    """What is in the log, in its order, but for when it was stored."""
    found: list[Message] = [
        message
        for topic in TOPICS
        for queue_id in store.queues(topic)
        for message in store.consumer(topic, queue_id=queue_id)
        if message.physical_offset >= begin
    ]
    found.sort(key=lambda message: message.physical_offset)
    return [
        (
            *(
                m.topic,
                m.queue_id,
                m.queue_offset,
                m.physical_offset - begin,
                m.size,
                bytes(m.body),
            ),
            *(dict(m.properties), m.flag, m.sys_flag, m.born_timestamp_ms, m.born_host),
            *(m.store_host, m.reconsume_times),
        )
        for m in found
    ]


@pytest.mark.parametrize("record_crc", [True, False])
@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_the_same_as_frames(
    tmp_path: Path, small_config: StoreConfig, rng: random.Random, record_crc: bool, durability: str
) -> None:
    """Two stores, one by frames; over many topics, queues and segments."""
    config = small_config.replace(record_crc=record_crc, durability=durability)
    with (
        rocketstore.open(tmp_path / "a", config=config) as store,
        rocketstore.open(tmp_path / "b", config=config) as other,
    ):
        for _ in range(6):
            count = rng.choice([1, 30, 700])
            texts = [rng.randbytes(rng.randrange(0, 900)) for _ in range(count)]
            bodies = column(texts)
            columns = some_columns(rng, count)
            frames, refused = encode_frames(bodies, **columns)
            assert refused == {}
            result = store.put_columns(bodies, **columns)
            by_frames = other.put_frames(frames)
            assert (result.count, result.physical_offset, result.end_offset) == (
                count, by_frames.physical_offset, by_frames.end_offset,
            )  # fmt: skip
            assert result.durability == by_frames.durability
            store.flush()
            other.flush()
            stored = [store.get(offset) for offset in result.physical_offsets]
            assert [m.queue_offset for m in stored] == list(result.queue_offsets)
            assert [m.queue_id for m in stored] == list(result.queue_ids)
            assert [bytes(m.body) for m in stored] == texts
        assert records(store, 0) == records(other, 0)
    for name in "ab":
        assert faults(verify(tmp_path / name)) == []


def one(**given: Any) -> dict[str, Any]:
    return {"bodies": column([b"ok", b"body", b"ok"]), "topics": ["t"], **given}


HUGE = column([b"", b"v" * 40_000, b""])


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"bodies": column([b"", b"x" * 1001, b"x" * 1002])}, MessageTooLargeError,
         "^row 1: body: 1001 bytes, at most 1000"),
        ({"keys": HUGE}, PropertiesTooLargeError, "^row 1: properties: more than 32767 bytes"),
        ({"tags": column([b"a", b"a", b"a\x01b"])}, MessageRejectedError,
         "^row 2: tags: holds a control character"),
        ({"properties": ([0, 0, 1, 1], column([b"DELAY"]), column([b"1"]))}, MessageRejectedError,
         "DELAY.*reserved"),
        ({"properties": ([0, 0, 0, 1], column([b"a"]), column([b""]))}, MessageRejectedError,
         "^row 2: property 'a': an empty value"),
        ({"topics": ["t", "w" * 200], "topic_rows": [0, 0, 1]}, InvalidTopicError, "www"),
        ({"topics": ["t", "SCHEDULE_TOPIC_XXXX"], "topic_rows": [0, 1, 0]}, MessageRejectedError,
         "put_message for delayed"),
        ({"topics": ["t", "../t"], "topic_rows": [0, 1, 0]}, InvalidTopicError, "t"),
        ({"queue_ids": [0, 1, -1]}, MessageRejectedError, "queue_ids: -1 is below 0"),
        ({"queue_ids": [0, 1]}, ValueError, "queue_ids"),
        ({"sys_flags": 0x8}, MessageRejectedError, "sys_flags"),
        ({"topics": "t"}, TypeError, "for one, \\['t'\\]"),
    ],
)  # fmt: skip
def test_nothing_is_stored_when_a_row_cannot_be(
    tmp_path: Path, given: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with rocketstore.open(
        tmp_path, durability="os", max_message_size_bytes=1000, commit_log_file_size_bytes=1 << 20
    ) as store:
        with pytest.raises(kind, match=said):
            store.put_columns(**one(**given))
        assert store.end_offset == 0
        assert store.put_columns(**one(queue_ids=[0, 1, 0])).queue_ids == [0, 1, 0]
        store.flush()


BESIDE = "v" * 30_000


@pytest.mark.parametrize(
    "put",
    [
        lambda store, bodies, entries: store.put_columns(bodies, topics=["t"], properties=entries),
        lambda store, bodies, entries: store.put_frames(
            encode_frames(bodies, topics=["t"], properties=entries)[0]
        ),
        lambda store, bodies, _: store.writer("t").put_columns(bodies, properties={"n": BESIDE}),
        lambda store, bodies, _: store.writer("t").put_columns(bodies, row_keys=["", BESIDE, ""]),
    ],
    ids=["columns", "frames", "same", "rows"],
)
def test_a_record_that_no_file_can_take_is_named_and_nothing_is_stored(
    tmp_path: Path, put: Callable[[Store, Column, Any], object]
) -> None:
    """K-20: body and properties are each small enough, and together larger than a file of the log."""
    bodies = column([b"a", b"x" * 40_000, b"b"])
    entries = ([0, 0, 1, 1], column([b"n"]), column([BESIDE.encode()]))
    with rocketstore.open(
        tmp_path, durability="os", commit_log_file_size_bytes=64 << 10, record_crc=False
    ) as store:
        with pytest.raises(MessageTooLargeError, match=r"^(row|frame) 1: .*, at most \d+ .* file"):
            put(store, bodies, entries)
        assert store.end_offset == 0
        put(store, column([b"a", b"x" * 30_000, b"b"]), entries)
        assert [len(m.body) for m in store.consumer("t")] == [1, 30_000, 1]


def test_it_needs_a_store_that_takes_puts(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, durability="os") as store:
        store.put_columns(**one())
        with pytest.raises(TypeError, match="no argument .max_body_bytes"):
            store.put_columns(**one(max_body_bytes=1))
    with pytest.raises(rocketstore.StoreClosedError):
        store.put_columns(**one())
    with rocketstore.open(tmp_path, "r") as store, pytest.raises(StoreReadOnlyError):
        store.put_columns(**one())


def test_rows_are_split_where_a_segment_ends(tmp_path: Path) -> None:
    bodies = column([bytes(900)] * 3000)
    with rocketstore.open(
        tmp_path, durability="os", commit_log_file_size_bytes=1 << 20, max_message_size_bytes=1000
    ) as store:
        store.writer("t").put(b"first")
        left = store.put_columns(bodies, topics=["t"])
        assert left.count == 3000
        assert left.end_offset > 2 << 20
        assert len({offset >> 20 for offset in left.physical_offsets}) == 3
