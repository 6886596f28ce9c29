"""Numbers and inner batches that no store of ours would write: they cost their own record, nothing else."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

import rocketstore
from rocketstore.log.queues.saved_ends import QueueEnds, queue_key
from rocketstore.log.read import batch_reader, fetch_result
from rocketstore.tools import rebuild, verify
from tests.corruption.hostile_faces import SIZES
from tests.support.batch_store import TOPIC, BatchStore, Part, packed
from tests.support.made_store import BODY_AT, MadeStore

NOWHERE = [-1, -(2**63), 2**63 - 1, 2**62, 2**59, 50_000_000]


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("queue_offset", NOWHERE)
def test_a_queue_offset_that_cannot_be_holds_nobody_up(
    tmp_path: Path, queue_offset: int, mode: rocketstore.store.Mode
) -> None:
    """Its record is read by its physical offset; the queue goes on, and so do all others."""
    made = MadeStore(tmp_path / "s")
    made.put(body=b"first", queue_offset=0)
    hostile = made.put(body=b"nowhere", queue_offset=queue_offset)
    made.put(body=b"second", queue_offset=1)
    made.put(topic="other", body=b"third")
    with rocketstore.open(made.root, mode) as store:
        assert [message.body for message in store.consumer("orders", queue_id=0)] == [
            b"first",
            b"second",
        ]
        assert [message.body for message in store.consumer("other")] == [b"third"]
        assert store.get(hostile.physical_offset).body == b"nowhere"
        assert store.dispatched_offset == store.visible_offset


@pytest.mark.parametrize("mode", ["r", "rw", "rebuild"])
def test_jumps_of_many_queues_take_no_more_files_than_the_log_explains(
    tmp_path: Path, mode: str
) -> None:
    """Each jump alone would be believed; 20 million units in files of ten would not end today."""
    made = MadeStore(tmp_path / "s")
    for queue_id in range(20):
        made.put(queue_id=queue_id, queue_offset=0)
        made.put(queue_id=queue_id, queue_offset=1_000_000, body=b"far")
        made.put(queue_id=queue_id, queue_offset=1, body=b"near")
    if mode == "rebuild":
        rebuild(made.root, workers=1)
    with rocketstore.open(made.root, "rw" if mode == "rw" else "r") as store:
        assert store.dispatched_offset == store.visible_offset
        bodies = [message.body for message in store.consumer("orders", queue_id=7)]
    assert bodies == [b"body", b"near"]
    files = [*(made.root / "consumequeue").rglob("0*")]
    assert len(files) < 2_000


@pytest.mark.parametrize("text", ["9" * 19, "9" * 5000, "-1", "٣", str(2**62), "1e3"])
def test_a_light_queue_offset_that_cannot_be_holds_nobody_up(tmp_path: Path, text: str) -> None:
    made = MadeStore(tmp_path / "s", segment_size=16384)
    lights = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": text}
    made.put(body=b"first", properties=lights)
    made.put(body=b"second")
    with rocketstore.open(made.root, "r") as store:
        assert [message.body for message in store.consumer("orders")] == [b"first", b"second"]


def test_a_light_queue_offset_of_thousands_of_digits_is_none_to_verify(tmp_path: Path) -> None:
    """Also where it walks record by record, as behind any damage."""
    made = MadeStore(tmp_path / "s", segment_size=16384)
    lights = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "9" * 5000}
    made.put(body=b"first", properties=lights)
    damaged = made.put(body=b"second")
    made.dispatch()
    assert verify(made.root).ok
    made.write_log(damaged.physical_offset + BODY_AT, b"S")
    assert [fault.reason for fault in verify(made.root).faults] == ["body crc"]


def test_a_property_text_of_nothing_but_separators(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "s", segment_size=65536)
    made.put(body=b"odd", properties={"KEYS": " " * 20_000, "TAGS": "\\" * 100})
    made.put(body=b"plain", properties=dict.fromkeys(["UNIQ_KEY", "KEYS"], "same"))
    with rocketstore.open(made.root) as store:
        assert [message.body for message in store.consumer("orders")] == [b"odd", b"plain"]
        assert [message.body for message in store.query("orders", "same")] == [b"plain"]


@pytest.mark.parametrize("opened", ["rw", "rebuild"])
@pytest.mark.parametrize("end", [1 << 62, 4_000_000])
def test_saved_ends_take_no_more_files_than_the_log_explains(
    tmp_path: Path, end: int, opened: str
) -> None:
    """Of a hostile author, with a right checksum: each alone is near enough to the end of its queue."""
    root = tmp_path / "s"
    with rocketstore.open(root, durability="os", **SIZES) as store:
        for number in range(40):
            store.writer("orders", queue_id=number % 4).put(b"%d" % number)
    ends = {queue_key("orders", queue_id): end for queue_id in range(4)}
    (root / "rocketstore/queue_ends").write_bytes(QueueEnds(1, ends).pack())
    if opened == "rebuild":
        rebuild(root, workers=1)
    else:
        (root / "abort").touch()
    with rocketstore.open(root, "rw") as store:
        assert len({message.body for message in store.consumer("orders")}) == 40
    assert len([*(root / "consumequeue").rglob("0*")]) < 2_000


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
