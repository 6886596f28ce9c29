"""The file that tells where queues ended: what is packed comes back, anything else tells nothing."""

from __future__ import annotations

import random

import pytest

from rocketstore._native.format.codec import crc32c
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.saved_ends import (
    QueueEnds,
    drop_queue_ends,
    load_queue_ends,
    queue_key,
    save_queue_ends,
)
from rocketstore.log.queues.units import QUEUE_OFFSET_MAX

#: The largest end of a queue: one more than its last queue offset.
LAST = QUEUE_OFFSET_MAX + 1


def test_ends_come_back(layout: StoreLayout, random_seed: int) -> None:
    source = random.Random(random_seed)
    wanted = {(f"topic-{n % 50}", n // 50): source.randrange(1, LAST + 1) for n in range(1000)}
    ends = QueueEnds(1 << 62, {queue_key(*name): end for name, end in wanted.items()})
    layout.queue_files.touch()  # of an earlier version
    save_queue_ends(layout, ends)
    assert not layout.queue_files.exists()
    assert layout.queue_ends.stat().st_size == 24 + 16 * 1000 + 24 + 4
    found = load_queue_ends(layout)
    assert found == ends
    assert found.log_end == 1 << 62
    assert {name: found.least(*name) for name in wanted} == wanted
    assert found.least("topic-50", 0) == found.least("topic-0", 20) == 0
    drop_queue_ends(layout)
    drop_queue_ends(layout)
    assert not layout.queue_ends.exists()
    assert load_queue_ends(layout) == QueueEnds()


def test_bytes_of_the_file(layout: StoreLayout) -> None:
    """Format 20.9."""
    assert queue_key("orders", 0) == 0x76EDAFD2DB6FF150
    ends = QueueEnds(4096, {queue_key("orders", 0): 35, 7: 9}, ((4, 0x01020304), (-1, 0)))
    data = (
        bytes.fromhex(
            "52535145 00000002 0000000000001000 00000000000000020000000000000007 0000000000000009"
        )
        + queue_key("orders", 0).to_bytes(8, "big")
        + (35).to_bytes(8, "big")
        + bytes.fromhex("0000000000000004 01020304 ffffffffffffffff 00000000")
    )
    assert ends.pack() == data + crc32c(data).to_bytes(4, "big")


def test_version_1_has_ends_and_no_digests() -> None:
    ends = QueueEnds(99, {1: 1, 5: 7}, ((2, 2), (3, 3)))
    old = bytearray(ends.pack()[:-28])
    old[4:8] = b"\0\0\0\1"
    assert QueueEnds.unpack(bytes(old) + crc32c(bytes(old)).to_bytes(4, "big")) == QueueEnds(
        99, {1: 1, 5: 7}
    )


def test_some_ends_change() -> None:
    stamps = (1, 2), (3, 4)
    ends = QueueEnds(10, {1: 1, 2: 2}).with_ends(20, {2: 5, 3: 3}, stamps)
    assert ends == QueueEnds(20, {1: 1, 2: 5, 3: 3}, stamps)
    assert ends != QueueEnds(21, {1: 1, 2: 5, 3: 3}, stamps)
    assert ends != QueueEnds(20, {1: 1, 2: 5, 3: 3}, ((1, 2), (3, 5)))


def test_no_other_bytes_are_believed(random_seed: int) -> None:
    source = random.Random(random_seed)
    data = QueueEnds(99, {key: key for key in range(20)}, ((1, 2), (3, 4))).pack()
    for _ in range(500):
        at = source.randrange(len(data))
        bad = bytearray(data)
        bad[at] ^= 1 << source.randrange(8)
        for odd in (bytes(bad), data[:at], data + data[: at + 1]):
            with pytest.raises(ValueError, match="checksum"):
                QueueEnds.unpack(odd)


@pytest.mark.parametrize(
    "changed", [(4, b"\0\0\0\3"), (0, b"RSCP"), (16, b"\xff" * 8), (16, bytes(8))]
)
def test_what_another_release_packed_tells_nothing(changed: tuple[int, bytes]) -> None:
    data = bytearray(QueueEnds(99, {1: 1}).pack()[:-4])
    at, content = changed
    data[at : at + len(content)] = content
    with pytest.raises(ValueError, match="version 2"):
        QueueEnds.unpack(bytes(data) + crc32c(bytes(data)).to_bytes(4, "big"))


@pytest.mark.parametrize("end", [LAST + 1, 1 << 62, (1 << 63) - 1, -1, -(1 << 63)])
def test_where_no_queue_can_end_tells_nothing(end: int) -> None:
    found = QueueEnds.unpack(QueueEnds(1, {queue_key("t", 0): end, queue_key("t", 1): LAST}).pack())
    assert [found.least("t", queue_id) for queue_id in (0, 1)] == [0, LAST]
