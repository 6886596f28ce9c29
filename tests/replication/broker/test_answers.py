"""What the bodies of a broker's answers say: none takes more memory than its file may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketstore.replication.broker import answers

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
