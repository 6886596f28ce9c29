"""The first unit of a file of a queue, whose record was trimmed."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketstore
from tests.support.small_store import open_small

__all__: list[str] = []


@pytest.mark.quick
def test_a_bit_of_its_size_hides_no_message(root: Path) -> None:
    """Its record would end far beyond the log."""
    with open_small(root, "rw", consume_queue_file_size_bytes=4000) as store:
        writer = store.writer("orders", queue_id=0)
        while (last := writer.put(bytes(200))).queue_offset < 100:
            pass
        store.flush()
        store.trim(before_offset=store.end_offset // 2)
        kept = store.begin_offset
    queue = root / "consumequeue" / "orders" / "0"
    (first,) = queue.iterdir()
    units = bytearray(first.read_bytes())
    assert int.from_bytes(units[:8], "big") < kept  # verify has no fault there
    units[8] ^= 4
    first.write_bytes(units)
    with rocketstore.open(root, "r") as store, store.consumer("orders", queue_id=0) as consumer:
        found = [one.queue_offset for batch in iter(consumer.poll, []) for one in batch]
    assert found and found == list(range(found[0], last.queue_offset + 1))
