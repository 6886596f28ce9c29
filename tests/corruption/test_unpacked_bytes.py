"""Inner batches that unpack to far more than they take in the log."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

import rocketstore
from rocketstore.log.read import batch_reader, fetch_result
from tests.support.batch_store import TOPIC, BatchStore, Part, packed

BODY = bytes(1 << 20)
BATCHES = 40


def bombs(root: Path, count: int = BATCHES) -> None:
    made = BatchStore(root)
    for _ in range(count):
        parts: list[Part] = [(BODY, {})]
        made.put_batch(parts, body=zlib.compress(packed(parts), 9), sys_flag=1)


def test_a_poll_unpacks_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives fewer messages than it may; the next one goes on behind them."""
    bombs(tmp_path / "s")
    unpacked = 0
    unpack = rocketstore.decompress

    def counting(record: rocketstore.Message) -> bytes:
        nonlocal unpacked
        body = unpack(record)
        unpacked += len(body)
        return body

    monkeypatch.setattr(batch_reader, "decompress", counting)
    offsets = []
    with rocketstore.open(tmp_path / "s", "r") as store:
        consumer = store.consumer(TOPIC)
        while True:
            before = unpacked
            messages = consumer.poll()
            assert unpacked - before <= fetch_result.UNPACKED_BYTES + 2 * len(BODY)
            if not messages:
                break
            offsets += [message.queue_offset for message in messages]
    assert offsets == list(range(BATCHES))


def test_what_a_filter_drops_is_passed_over_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch of which no message is wanted ends no poll."""
    monkeypatch.setattr(batch_reader, "UNPACKED_BYTES", 1)
    bombs(tmp_path / "s", 5)
    with rocketstore.open(tmp_path / "s", "r") as store:
        consumer = store.consumer(TOPIC, tags=["none"])
        assert consumer.poll() == []
        assert consumer.positions == {0: 5}
        assert [message.queue_offset for message in store.consumer(TOPIC)] == list(range(5))
