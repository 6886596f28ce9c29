"""Frames: encoded in one place, appended in another, and read as if they had been put."""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore import (
    InvalidTopicError,
    MessageRejectedError,
    MessageTooLargeError,
    StoreConfig,
    StoreReadOnlyError,
    encode_frames,
)
from rocketstore.tools import verify
from tests.support.text_columns import column
from tests.support.verifying import faults

CRC_AT = 8
MASKED = np.ma.array([0, 0], mask=[False, True])


def frame(body: bytes = b"body", topic: str = "t", **given: object) -> bytes:
    frames, refused = encode_frames(column([body]), topics=[topic], **given)  # type: ignore[arg-type]
    assert refused == {}
    return bytes(frames)


@pytest.mark.parametrize("record_crc", [True, False])
def test_frames_read_like_messages_that_were_put(
    tmp_path: Path, small_config: StoreConfig, rng: random.Random, record_crc: bool
) -> None:
    """Order, queue offsets, fields and checksums, over many topics, queues and segments."""
    count = 700
    bodies = [rng.randbytes(rng.randrange(0, 900)) for _ in range(count)]
    rows = [rng.randrange(3) for _ in range(count)]
    queues = [rng.randrange(4) for _ in range(count)]
    tags = [rng.choice([b"", b"a", "ü".encode()]) for _ in range(count)]
    names = [b"region", b"n"] * count
    values = [b"v%d" % n for n in range(2 * count)]
    frames, refused = encode_frames(
        column(bodies),
        topics=["x", "y", "z"],
        topic_rows=np.array(rows),
        queue_ids=np.array(queues),
        tags=column(tags),
        keys=column([b"k%d" % n for n in range(count)]),
        properties=(np.arange(0, 2 * count + 1, 2), column(names), column(values)),
        born_timestamps_ms=np.arange(count) + 1_700_000_000_000,
        born_host="10.1.2.3:99",
    )
    assert refused == {}
    config = small_config.replace(record_crc=record_crc)
    with rocketstore.open(tmp_path / "s", config=config) as store:
        store.writer("x", queue_id=1).put(b"before")
        result = store.put_frames(frames)
        assert result.count == count and result.durability == "disk"
        assert result.end_offset == store.end_offset == store.flushed_offset
        seen: dict[tuple[str, int], list[rocketstore.Message]] = {}
        for topic in "xyz":
            for queue_id in range(4):
                seen[topic, queue_id] = list(store.consumer(topic, queue_id=queue_id))
        assert seen["x", 1].pop(0).body == b"before"
        expected: dict[tuple[str, int], list[int]] = {key: [] for key in seen}
        for row in range(count):
            expected["xyz"[rows[row]], queues[row]].append(row)
        for key, messages in seen.items():
            first = 1 if key == ("x", 1) else 0
            assert [m.queue_offset for m in messages] == list(range(first, first + len(messages)))
            assert [m.body for m in messages] == [bodies[row] for row in expected[key]]
            for message, row in zip(messages, expected[key], strict=True):
                assert (message.tags or "").encode() == tags[row]
                assert message.keys == (f"k{row}",)
                assert message.properties["n"] == f"v{2 * row + 1}"
                assert message.born_timestamp_ms == row + 1_700_000_000_000
                assert message.born_host == "10.1.2.3:99"
                assert message.store_timestamp_ms > row
        places = sorted(m.physical_offset for messages in seen.values() for m in messages)
        assert places[0] == result.physical_offset
    assert faults(verify(tmp_path / "s", index_slots=100, index_entries=400)) == []
    with rocketstore.open(tmp_path / "s", "r+") as store:
        assert store.query("z", key=f"k{expected['z', 0][0]}")


def test_a_frame_may_hold_a_record_crc_already(tmp_path: Path) -> None:
    """Frames can be records of another store: their record CRC gives way to the log's own."""
    with rocketstore.open(tmp_path / "a", record_crc=True, durability="os") as store:
        put = store.writer("t", queue_id=3).put(b"body", tags="x", properties={"p": "q"})
        segment = next((tmp_path / "a" / "commitlog").iterdir())
        record = segment.read_bytes()[put.physical_offset : put.end_offset]
    for record_crc in (True, False):
        path = tmp_path / f"b{record_crc}"
        with rocketstore.open(path, record_crc=record_crc, durability="os") as store:
            store.put_frames(record * 2)
            first, second = store.consumer("t", queue_id=3)
            assert (first.body, second.properties) == (b"body", {"p": "q", "TAGS": "x"}) or (
                second.properties.keys() - {"__CRC32#"} == {"p", "TAGS"}
            )
            assert second.queue_offset == 1 and second.store_timestamp_ms >= put.store_timestamp_ms


def test_nothing_is_stored_when_one_frame_is_wrong(tmp_path: Path, rng: random.Random) -> None:
    """Each byte of a frame that is changed is refused, or is a field that may have any value."""
    good = frame(b"some body", tags=column([b"t"]))
    free = range(CRC_AT + 4, 48 + 8 + 8 + 8 + 4 + 8)  # numbers, flags, times, hosts
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        before = store.end_offset
        for at in range(len(good)):
            changed = bytearray(good)
            changed[at] ^= 1 << rng.randrange(8)
            topic_or_text = at >= 84 + len(b"some body")
            if at in free or topic_or_text:
                continue
            with pytest.raises(MessageRejectedError, match="byte"):
                store.put_frames(good + bytes(changed))
            assert store.end_offset == before
        for wrong in (good[:-1], good + b"\0", good[:40], bytes(200)):
            with pytest.raises(MessageRejectedError):
                store.put_frames(wrong)
        assert store.end_offset == before


@pytest.mark.parametrize("flag", [0x4, 0x8, 0xC, 0x40, 0x80])
def test_transactions_and_batches_do_not_come_as_frames(tmp_path: Path, flag: int) -> None:
    wrong = bytearray(frame())
    struct.pack_into(">i", wrong, 36, flag)
    with (
        rocketstore.open(tmp_path / "s", durability="os") as store,
        pytest.raises(MessageRejectedError, match="sys_flag"),
    ):
        store.put_frames(wrong)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (b"INNER_N\1v\2", False),
        (b"INNER_\1v\2\2", False),
        (b"INNER_\1\2xy", True),  # no property: it has no value
        (b"inner_N\1v\2", True),
        (b"xINNER_\1v\2", True),
        (b"x\1INNER_\1\2", True),
    ],
)
def test_properties_of_batches_do_not_come_as_frames(
    tmp_path: Path, place: int, text: bytes, taken: bool
) -> None:
    names, values = [b"abcdefg", b"other"], [b"v", b"w"]
    if place:
        names.reverse()
        values.reverse()
    properties = (np.array([0, 2]), column(names), column(values))
    changed = frame(properties=properties).replace(b"abcdefg\1v\2", text)
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        if taken:
            assert store.put_frames(changed).count == 1
        else:
            with pytest.raises(MessageRejectedError, match="light queues"):
                store.put_frames(changed)


def test_topics_and_sizes_are_the_stores_to_decide(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", durability="os", max_message_size_bytes=1000) as store:
        with pytest.raises(MessageTooLargeError):
            store.put_frames(frame(bytes(1001)))
        with pytest.raises(InvalidTopicError):
            store.put_frames(frame(topic="w" * 200))
        with pytest.raises(MessageRejectedError, match="SCHEDULE_TOPIC_XXXX"):
            store.put_frames(frame(topic="SCHEDULE_TOPIC_XXXX"))
        escaped = frame(topic="abcd").replace(b"abcd", b"../a")
        with pytest.raises(InvalidTopicError):
            store.put_frames(escaped)
        assert store.end_offset == 0
    with (
        rocketstore.open(tmp_path / "s", "r") as store,
        pytest.raises(StoreReadOnlyError),
    ):
        store.put_frames(frame())


def test_rows_that_cannot_be_messages_are_named() -> None:
    bodies = column([b"ok", b"x" * 11, b"ok", b"ok"])
    tags = column([b"t", b"t", b"a\x01b", b"\x02"])
    frames, refused = encode_frames(
        bodies, topics=["t"], tags=tags, max_body_bytes=10, born_timestamps_ms=1
    )
    separator = "tags: holds a control character 1 or 2, which separate properties"
    assert refused == {1: "body: 11 bytes, at most 10", 2: separator, 3: separator}
    assert frames == frame(b"ok", tags=column([b"t"]), born_timestamps_ms=1)
    huge = column([b"v" * 40_000])
    _, refused = encode_frames(column([b""]), topics=["t"], keys=huge)
    assert refused == {0: "properties: more than 32767 bytes, encoded"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keys": column([b"a\x01b"])}, "keys: holds a control character"),
        ({"properties": ([0, 1], column([b"zone"]), column([b"\x02"]))}, "property 'zone': holds"),
        ({"properties": ([0, 1], column([b"zone"]), column([b""]))}, "'zone': an empty value"),
        ({"properties": ([0, 1], column([b""]), column([b"a"]))}, "properties: an empty name"),
        ({"properties": ([0, 1], column([b"z\x02"]), column([b"a"]))}, r"'z\x02': holds"),
    ],
)
def test_a_refusal_names_the_field(given: dict[str, Any], said: str) -> None:
    """Of several fields: the first that is wrong, also behind one that is right."""
    tags = column([b"paid"])
    _, refused = encode_frames(column([b""]), topics=["t"], **{"tags": tags, **given})
    assert said in refused[0]


@pytest.mark.parametrize("name", ["TAGS", "DELAY", "INNER_NUM", "__CRC32#", "x__CRC32#"])
def test_reserved_names_are_refused(name: str) -> None:
    properties = (np.array([0, 1]), column([name.encode()]), column([b"1"]))
    with pytest.raises(MessageRejectedError, match="CRC|reserved"):
        frame(properties=properties)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic_rows": [1]}, "topic_rows"),
        ({"topic_rows": [-1]}, "topic_rows"),
        ({"queue_ids": [0, 1]}, "queue_ids"),
        ({"queue_ids": 2**31}, "queue_ids"),
        ({"queue_ids": 0.5}, "queue_ids"),
        ({"tags": column([b"a", b"b"])}, "tags"),
        ({"tags": (np.array([0, 5]), b"abc")}, "tags"),
        ({"tags": (np.array([2, 1]), b"abc")}, "tags"),
        ({"properties": (np.array([0, 2]), column([b"a"]), column([b"b"]))}, "properties"),
        ({"properties": (np.array([0, 1]), column([b"a"]), column([]))}, "values"),
    ],
)
def test_columns_have_to_fit(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        frame(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic_rows": [0, 1]}, r"topic_rows: places in topics are 0 … 0, not 1 \(row 1\)"),
        ({"topic_rows": [0, -1]}, r"topic_rows: .*, not -1 \(row 1\)"),
        ({"topics": []}, "topics: no topic"),
        ({"queue_ids": [1]}, r"queue_ids: expected .* 2 of them, not dtype int64, shape \(1,\)"),
        ({"queue_ids": [1, 2**31]}, r"queue_ids: .* 2147483647, not 2147483648 \(row 1\)"),
        ({"queue_ids": [1, -2]}, r"queue_ids: -2 is below 0 \(row 1\)"),
        ({"queue_ids": [[1], [2, 3]]}, "queue_ids: "),
        ({"flags": -(2**31) - 1}, "flags: -2147483648 … 2147483647, not -2147483649$"),
        ({"born_timestamps_ms": [1.5, 2]}, "born_timestamps_ms: expected .* 2 of them"),
        ({"born_timestamps_ms": [0, -(2**63)]}, r"born_timestamps_ms: .*775807, not .*8 \(row 1\)"),
        ({"born_timestamps_ms": -(2**63)}, "born_timestamps_ms: -9223372036854775807 … .*, not -"),
        ({"born_timestamps_ms": MASKED}, r"born_timestamps_ms: row 1 is masked"),
        ({"queue_ids": MASKED}, r"queue_ids: row 1 is masked; use .filled with a number"),
        ({"properties": (MASKED, column([]), column([]))}, "properties: row 1 is masked"),
    ],
)
def test_a_number_that_is_wrong_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(MessageRejectedError, match=said):
        encode_frames(column([b"a", b"b"]), **{"topics": ["t"], **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topics": None}, "topics: expected a list of texts, not NoneType"),
        ({"properties": {"a": "b"}}, r"properties: expected the tuple \(offsets, names, values\)"),
        ({"properties": ([0, 1], column([b"a"]))}, "properties: expected the tuple"),
    ],
)
def test_what_is_no_column_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        encode_frames(column([b"a"]), **{"topics": ["t"], **given})


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        (np.array([0, 2**32, 2**32 + 3]), "bodies: offsets: end behind the data"),
        (np.array([0, 2**63, 2**63 + 3], np.uint64), "9223372036854775811 does not fit"),
        ([0, 2**64], "dtype object, expected integers"),
        (np.array([0, 1.9, 3]), "dtype float64, expected integers"),
        ([False, True], "dtype bool, expected integers"),
        ([[0, 3]], "shape \\(1, 2\\)"),
        ([[0, 3], [1]], "bodies: offsets"),
        (np.array([], np.int32), "n \\+ 1 integers for n rows"),
        (3, "shape \\(\\)"),
        (b"abc", "dtype"),
    ],
)
def test_offsets_are_neither_rounded_nor_wrapped(offsets: object, said: str) -> None:
    with pytest.raises(MessageRejectedError, match=said):
        encode_frames((offsets, b"abc"), topics=["t"])
    properties = (offsets, column([b"a"] * 3), column([b"b"] * 3))
    with pytest.raises(MessageRejectedError, match="properties"):
        frame(properties=properties)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int64, np.uint64, list])
def test_offsets_of_any_integer_kind(kind: type) -> None:
    offsets = [0, 2, 3] if kind is list else np.array([0, 2, 3], kind)
    frames, refused = encode_frames((offsets, b"abc"), topics=["t"], born_timestamps_ms=1)
    both = [frame(b"ab", born_timestamps_ms=1), frame(b"c", born_timestamps_ms=1)]
    assert (bytes(frames), refused) == (b"".join(both), {})


def test_offsets_beyond_two_gib() -> None:
    """A slice of a large column: its offsets need 64 bits, its rows do not."""
    start = 2**31 + 2
    data = np.zeros(start + 7, np.uint8)  # pages that nobody touches cost no memory
    data[start:] = np.frombuffer(b"abcdefg", np.uint8)
    frames, refused = encode_frames(
        (np.array([start, start + 3, start + 7]), data), topics=["t"], born_timestamps_ms=1
    )
    both = [frame(b"abc", born_timestamps_ms=1), frame(b"defg", born_timestamps_ms=1)]
    assert (bytes(frames), refused) == (b"".join(both), {})


@pytest.mark.parametrize(
    ("bodies", "error", "said"),
    [
        ((b"abc", [0, 3]), MessageRejectedError, "pair \\(offsets, data\\)"),
        ((b"abc", np.array([0, 3])), MessageRejectedError, "pair \\(offsets, data\\)"),
        ((np.array([0, 1, 2], np.uint8), [0, 1]), TypeError, "pair \\(offsets, data\\)"),
        (([0, 3], np.arange(3)), MessageRejectedError, "data: dtype int64, expected uint8"),
        (([0, 3], np.zeros((3, 3), np.uint8)), MessageRejectedError, "2 dimensions"),
        (([0, 3], "abc"), TypeError, "encode it first"),
        (b"abc", TypeError, "bodies: expected a pair"),
        (([0, 3],), TypeError, "bodies: expected a pair"),
    ],
)
def test_a_column_is_offsets_and_bytes(bodies: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        encode_frames(bodies, topics=["t"])  # type: ignore[arg-type]


def test_topics_are_several() -> None:
    with pytest.raises(TypeError, match="for one, \\['orders'\\]"):
        encode_frames(column([b"a"]), topics="orders")


def test_messages_are_born_when_they_are_encoded(tmp_path: Path) -> None:
    """As those of put: without a time of their own they are not from 1970."""
    before = time.time_ns() // 1_000_000
    frames = frame()
    after = time.time_ns() // 1_000_000
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        message = store.get(store.put_frames(frames).physical_offset)
    assert before <= message.born_timestamp_ms <= after


def test_memory_whose_frames_are_in_use_is_not_made_larger() -> None:
    memory = bytearray()
    frames, _ = encode_frames(column([b"a"]), topics=["t"], into=memory)
    with pytest.raises(BufferError, match=r"into: \d+ bytes are too few.*; release\(\) those, or"):
        encode_frames(column([b"a" * 1000]), topics=["t"], into=memory)
    frames.release()
    again, _ = encode_frames(column([b"a" * 1000]), topics=["t"], into=memory, born_timestamps_ms=1)
    assert again == frame(b"a" * 1000, born_timestamps_ms=1)


def test_the_empty_column_has_no_frames() -> None:
    assert encode_frames(column([]), topics=[]) == (b"", {})


def test_numbers_of_a_frame(tmp_path: Path) -> None:
    """Flags as they are given; of sys_flags only what says how a body is compressed."""
    frames, refused = encode_frames(
        column([b"a", b"b"]),
        topics=["t"],
        flags=np.array([1, -2]),
        sys_flags=np.array([0x301, 0]),
        reconsume_times=3,
    )
    assert refused == {}
    with rocketstore.open(tmp_path) as store:
        store.put_frames(frames)
        found = [(m.flag, m.sys_flag, m.reconsume_times) for m in store.consumer("t")]
    assert found == [(1, 0x301, 3), (-2, 0, 3)]
    for wrong in (0x2, 0x8, 0x10, -1, 0x801):
        with pytest.raises(MessageRejectedError, match=r"sys_flags: .*0x701"):
            frame(sys_flags=wrong)
    with pytest.raises(ValueError, match="flags: "):
        frame(flags=[1, 2])
    with pytest.raises(ValueError, match="reconsume_times: -2147483648"):
        frame(reconsume_times=2**31)
