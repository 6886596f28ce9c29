"""What was cut stays cut, also when a new record ends exactly where an old one began."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.log_store import (
    SEGMENT,
    LogBuilder,
    durable_at,
    put_bytes,
    recover_store,
    served,
)

#: Records of one size, all in the first segment.
COUNT = 20
TORN = 15


@pytest.fixture
def builder() -> LogBuilder:
    builder = LogBuilder()
    for number in range(COUNT):
        builder.add(b"old body %06d" % (100_000 + number))
    assert builder.end < SEGMENT
    return builder


def replacement(builder: LogBuilder, number: int) -> bytes:
    """A new record of the same size for the place of record `number`."""
    start, end = builder.records[number]
    builder.now_ms += 60_000
    record = builder.encode(b"new body %06d" % (100_000 + number), "orders", 0, start, number)
    assert len(record) == end - start
    return record


def test_records_behind_a_cut_do_not_come_back(builder: LogBuilder, tmp_path: Path) -> None:
    """D-29: RocketMQ would serve the old records 16 … 19 behind the new record 15 again."""
    layout = builder.write(tmp_path / "store")
    durable_at(layout, builder, 10)
    torn, _ = builder.records[TORN]
    put_bytes(layout, torn + 95, b"\xff\x00\xff")
    assert recover_store(layout).end == torn
    put_bytes(layout, torn, replacement(builder, TORN))
    _, end = builder.records[TORN]
    assert recover_store(layout).end == end
    assert served(layout) == [start for start, _ in builder.records[: TORN + 1]]


def test_the_same_bytes_come_back_without_the_cut(builder: LogBuilder, tmp_path: Path) -> None:
    """The case above would pass for nothing if stale records were no danger."""
    layout = builder.write(tmp_path / "store")
    durable_at(layout, builder, 10)
    torn, _ = builder.records[TORN]
    put_bytes(layout, torn, replacement(builder, TORN))
    assert recover_store(layout).end == builder.end
