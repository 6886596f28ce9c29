"""A reader that is there before the writer, and stays when writers come and go."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import rocketstore
from tests.process.other_process import SMALL
from tests.support.small_store import engine_of

OPTIONS = {**SMALL, "durability": "os"}


@pytest.mark.parametrize("filled", [0, 50])
def test_a_reader_sees_the_writers_that_come_later(filled: int, root: Path) -> None:
    """D-30: opened when nobody writes, after a clean stop."""
    with rocketstore.open(root, **OPTIONS) as store:
        for n in range(filled):
            store.writer("Orders").put(b"%d" % n)
    reader = rocketstore.open(root, "r", **OPTIONS)
    assert reader.recovery.mode == "clean"
    assert reader.end_offset == reader.dispatched_offset == reader.recovery.end
    seen: list[bytes] = []
    total = filled + 3 * 400

    def follow() -> None:
        with reader.consumer("Orders", queue_id=0) as consumer:
            for message in consumer.follow(timeout_s=30):
                seen.append(message.body)
                if len(seen) == total:
                    return

    follower = threading.Thread(target=follow)
    follower.start()
    number = filled
    for _ in range(3):
        with rocketstore.open(root, **OPTIONS) as store:
            for _ in range(400):
                store.writer("Orders").put(b"%d" % number)
                number += 1
    follower.join(60)
    assert not follower.is_alive()
    assert seen == [b"%d" % n for n in range(total)]
    assert reader.end_offset >= reader.get(0).size * total
    reader.close()


def test_a_stopped_store_is_read_without_looking(root: Path) -> None:
    """Its units are not compared with their records one by one."""
    with rocketstore.open(root, **OPTIONS) as store:
        end = [store.writer("Orders").put(b"%d" % n, keys="k") for n in range(300)][-1].end_offset
    with rocketstore.open(root, "r", **OPTIONS) as reader:
        assert reader.end_offset == reader.visible_offset == reader.dispatched_offset == end
        assert len(list(reader.consumer("Orders"))) == 300
        assert reader.max_queue_offset("Orders", 0) == 300
        assert len(reader.query("Orders", "k", limit=64)) == 64
        source = engine_of(reader).reader.source
        assert source.writer == "none"
        assert source._view.dispatched == end
