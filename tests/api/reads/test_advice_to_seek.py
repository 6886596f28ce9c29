"""What an error says of `seek` can be done as it stands, whichever queues the consumer has."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rocketstore import CorruptRecordError, ReadFailedError
from rocketstore.consumer import Consumer
from rocketstore.errors import RocketStoreError
from tests.support.small_store import open_small, segments


def follow(consumer: Consumer, error: RocketStoreError) -> None:
    found = re.search(r"seek\((\d+), queue_id=(\d+)\)", "\n".join(error.__notes__))
    assert found is not None, error.__notes__
    consumer.seek(int(found[1]), queue_id=int(found[2]))


@pytest.mark.parametrize("queue_id", [None, 1], ids=["all queues", "one queue"])
def test_a_damaged_record_of_one_queue(tmp_path: Path, queue_id: int | None) -> None:
    with open_small(tmp_path) as store:
        writer = store.writer("orders", queues=2)
        placed = [writer.put(b"m%d" % n) for n in range(20)]
        bad = placed[7].physical_offset
    with segments(tmp_path)[0].open("r+b") as file:
        os.pwrite(file.fileno(), b"\xff", bad + 88)
    got, errors = [], []
    with open_small(tmp_path, "r") as store:
        consumer = store.consumer("orders", queue_id=queue_id)
        while len(got) < (19 if queue_id is None else 9):
            try:
                got.append(next(consumer).body)
            except CorruptRecordError as error:
                errors.append((error.queue_id, error.queue_offset))
                follow(consumer, error)
        assert next(consumer, None) is None
    wanted = [b"m%d" % n for n in range(20) if n != 7 and queue_id in (None, n % 2)]
    assert sorted(got) == sorted(wanted)
    assert errors == [(1, 3)]


@pytest.mark.usefixtures("unlooked")
def test_units_that_one_queue_lacks(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        writer = store.writer("orders", queues=2)
        for n in range(80):
            writer.put(b"m%d" % n)
    (tmp_path / "consumequeue" / "orders" / "1" / f"{200:020d}").unlink()
    got, errors = set(), 0
    with open_small(tmp_path, "r") as store:
        consumer = store.consumer("orders")
        while len(got) < 70:
            try:
                got.add(next(consumer).body)
            except ReadFailedError as error:
                errors += 1
                follow(consumer, error)
        assert next(consumer, None) is None
    assert errors == 1
    assert got == {b"m%d" % n for n in range(80) if not (n % 2 and 20 <= n < 40)}
