"""RocketMQ's remoting protocol: frames and answers that are taken, and those that are refused."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from rocketstore import ReplicationError
from rocketstore.replication.broker import answers
from rocketstore.replication.broker.frames import (
    FRAME_BYTES_MOST,
    HEADER_BYTES_MOST,
    Answer,
    AnswerReader,
    request,
)
from tests.replication.broker.broker_like import binary_frame, json_frame

#: Frames that are taken, or refused, in one run of the fuzzer.
FUZZED = int(os.environ.get("ROCKETSTORE_FUZZED_FRAMES", 3000))


def read(data: bytes) -> list[Answer]:
    return AnswerReader().receive(memoryview(data))


def test_a_request_is_a_frame_with_a_json_header() -> None:
    frame = request(43, 7)
    size, mark = struct.unpack_from(">II", frame)
    assert size == len(frame) - 4
    assert mark == len(frame) - 8
    header = json.loads(frame[8:])
    assert (header["code"], header["opaque"], header["flag"]) == (43, 7, 0)


@pytest.mark.parametrize("frame", [json_frame, binary_frame])
def test_both_kinds_of_header_are_read(frame: Callable[..., bytes]) -> None:
    (answer,) = read(frame(7, b"{}", code=0))
    assert (answer.code, answer.body, answer.remark) == (0, b"{}", "")
    assert answer.answers(7)
    assert not answer.answers(8)


def test_a_remark_is_shown_in_part() -> None:
    (one,) = read(json_frame(1, b"", code=1, remark="no"))
    (other,) = read(binary_frame(1, b"", code=1, remark=b"\xff" * 5000))
    assert one.remark == "no"
    assert len(other.remark) < 300


def test_a_request_of_the_broker_is_no_answer() -> None:
    (found,) = read(json_frame(7, b"", flag=0))
    assert not found.answers(7)


def test_frames_come_in_pieces_and_together() -> None:
    data = json_frame(1, b"a" * 300) + binary_frame(2, b"b") + json_frame(3, b"")
    for size in (1, 7, 200, len(data)):
        reader, found = AnswerReader(), list[Answer]()
        for at in range(0, len(data), size):
            found += reader.receive(memoryview(data)[at : at + size])
        assert [answer.opaque for answer in found] == [1, 2, 3]


WRONG = {
    "too long": struct.pack(">I", FRAME_BYTES_MOST + 1),
    "too short": struct.pack(">I", 3) + b"abc",
    "http": b"HTTP/1.1 400 Bad Request",
    "header beyond the frame": struct.pack(">II", 8, 5) + b"abcd",
    "long header": struct.pack(">II", HEADER_BYTES_MOST + 5, HEADER_BYTES_MOST + 1)
    + b" " * (HEADER_BYTES_MOST + 1),
    "another kind": struct.pack(">II", 4, 2 << 24),
    "no json": struct.pack(">II", 5, 1) + b"{",
    "no utf-8": struct.pack(">II", 6, 2) + b"\xff\xff",
    "no object": struct.pack(">II", 6, 2) + b"[]",
    "no code": struct.pack(">II", 6, 2) + b"{}",
    "a boolean": struct.pack(">II", 36, 32) + b'{"code":true,"opaque":1,"flag":1}',
    "nested": struct.pack(">II", 404, 400) + b"[" * 400,
    "short binary": struct.pack(">II", 8, 1 << 24 | 4) + b"abcd",
    "remark beyond the header": struct.pack(">II", 21, 1 << 24 | 17)
    + struct.pack(">hBhiiI", 0, 0, 0, 1, 1, 1)[:17],
    "bytes after the fields": struct.pack(">II", 26, 1 << 24 | 22)
    + struct.pack(">hBhiiII", 0, 0, 0, 1, 1, 0, 0) + b"x",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_answer_is_refused(name: str) -> None:
    with pytest.raises(ReplicationError):
        read(WRONG[name])


def test_nothing_is_kept_for_bytes_that_have_not_come() -> None:
    """A peer that announces much costs what it sends."""
    reader = AnswerReader()
    assert reader.receive(memoryview(struct.pack(">I", FRAME_BYTES_MOST))) == []
    assert reader.__sizeof__() < 1000
    assert len(reader._data) == 4


def test_fuzzed_frames(rng: random.Random) -> None:
    """Changed, cut and lengthened frames are answers or ReplicationError, never anything else."""
    seeds = [
        json_frame(1, b'{"offsetTable":{"a@b":{0:1}}}', remark="no"),
        binary_frame(1, b'{"offsetTable":{1:1}}', remark=b"no"),
    ]
    taken = refused = 0
    for _ in range(FUZZED):
        data = bytearray(rng.choice(seeds) * rng.randint(1, 2))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            change = rng.randrange(4)
            if change == 0:
                data[at] = rng.randrange(256)
            elif change == 1:
                del data[at : at + rng.randrange(8)]
            elif change == 2:
                data[at:at] = rng.randbytes(rng.randrange(8))
            else:
                data[at : at + 4] = rng.choice((b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff"))
            if not data:
                break
        try:
            taken += len(read(bytes(data)))
        except ReplicationError:
            refused += 1
    assert taken
    assert refused


PARSERS = (
    *(answers.topics, answers.groups, answers.group_offsets, answers.delay_offsets),
    answers.end_of_log,
)
BODIES = (
    b'{"dataVersion":{"counter":1},"topicConfigTable":{"T":{"perm":6,"attributes":{}}}}',
    b'{"subscriptionGroupTable":{"g":{"id":1}},"forbiddenTable":{},"dataVersion":{}}',
    b'{"offsetTable":{"T@g":{0:5,1:7}},"dataVersion":{"counter":1}}',
    b'{"offsetTable":{1:5,18:7}}',
    b'{"table":{"commitLogMaxOffset":"4096"}}',
)


def test_fuzzed_bodies(rng: random.Random) -> None:
    """What a body is not is ValueError, never anything else."""
    parts = [b"[", b"{", b"}", b'"', b":", b",", b"1", b"-", b"e9", b"null", b"true", b"\xff"]
    parts += [b"\\ud800", b"9" * 5000, b"NaN", b"[" * 2000, b"9223372036854775808"]
    taken = refused = 0
    for _ in range(FUZZED):
        data = bytearray(rng.choice(BODIES))
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(4)] = rng.choice(parts)
        for parse in PARSERS:
            try:
                parse(bytes(data))
                taken += 1
            except ValueError:
                refused += 1
    assert taken
    assert refused


M = 15 << 20
OBJECTS = b'"%x":{},' * (M // 8)
BOMBS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "topics": (answers.topics, b'{"topicConfigTable":{' + OBJECTS + b'"a":{}}}'),
    "lists": (answers.topics, b'{"topicConfigTable":{"a":{"x":[' + b"[]," * (M // 3) + b"[]]}}}"),
    "groups": (answers.groups, b'{"subscriptionGroupTable":{' + OBJECTS + b'"a":{}}}'),
    "offsets": (answers.group_offsets, b'{"offsetTable":{' + OBJECTS + b'"a@g":{}}}'),
    "pairs": (answers.group_offsets, b'{"offsetTable":{"a@g":{' + b"7:1," * (M // 4) + b"1:1}}}"),
    "levels": (answers.delay_offsets, b'{"offsetTable":{' + b"7:1," * (M // 4) + b"1:1}}"),
    "version": (answers.delay_offsets, b'{"dataVersion":{"x":[' + b"[]," * (M // 3) + b"[]]}}"),
    "end": (answers.end_of_log, b'{"table":{' + b'"a":"b",' * (M // 8) + b'"c":"d"}}'),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_parsed(name: str) -> None:
    take, body = BOMBS[name]
    with pytest.raises(ValueError, match=r"more than [0-9,]+ (entries|bytes)"):
        take(body)


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"a":' * 1000, b"9" * 5000, b'{"table":{1:1e999}}']
)
def test_no_answer_ends_without_a_type(body: bytes) -> None:
    for take, _ in BOMBS.values():
        with pytest.raises(ValueError, match=r"."):
            take(body)


def test_a_large_broker_is_believed() -> None:
    row = b'{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"writeQueueNums":8}'
    body = b'{"topicConfigTable":{%b}}' % b",".join(
        b'"topic_%d":%b' % (n, row) for n in range(25_000)
    )
    assert len(answers.topics(body)["topicConfigTable"]) == 25_000  # type: ignore[arg-type]
    body = b'{"offsetTable":{%b}}' % b",".join(b'"t%d@g":{0:%d}' % (n, n) for n in range(100_000))
    assert len(answers.group_offsets(body)) == 100_000
