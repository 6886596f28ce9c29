"""put_batch: several bodies, one place, one promise, all or nothing."""

from __future__ import annotations

import asyncio
import pickle
import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import MessageTooLargeError, NewMessage, Store
from tests.support.small_store import SEGMENT, dispatched, everything, open_small


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.store("durability")
def test_bodies_stand_back_to_back(durability: str, store: Store) -> None:
    """S004-59: one put and a batch make the same records; the result speaks of all of them."""
    bodies = [b"%d" % i * i for i in range(1, 8)]
    writer = store.writer("orders")
    writer.put(b"before")
    result = writer.put_batch(bodies, tags="paid", keys=["a", "b"], properties={"p": "1"}, flag=3)
    assert (result.count, result.queue_offset) == (7, 1)
    assert result.queue_offsets == range(1, 8)
    store.wait_flushed(result.end_offset)
    end = result.physical_offset
    for body, offset in zip(bodies, result.physical_offsets, strict=True):
        message = store.get(offset)
        assert offset == end
        end += message.size
        assert (message.body, message.tags, message.keys) == (body, "paid", ("a", "b"))
        assert (message.flag, message.properties["p"]) == (3, "1")
        assert message.store_timestamp_ms == result.store_timestamp_ms
    assert end == result.end_offset == store.end_offset
    assert [m.body for m in everything(dispatched(store))] == [b"before", *bodies]


def test_a_batch_never_crosses_a_segment(writer: rocketstore.Writer) -> None:
    writer.put(b"x" * 2000)
    result = writer.put_batch([b"y" * 700] * 3)
    assert {offset // SEGMENT for offset in result.physical_offsets} == {1}
    assert result.physical_offset == SEGMENT


@pytest.mark.store(max_message_size_bytes=100)
def test_one_bad_body_stores_nothing(store: Store, writer: rocketstore.Writer) -> None:
    for bad, error in (
        (b"x" * 101, MessageTooLargeError),
        ("text", TypeError),
        (None, TypeError),
    ):
        with pytest.raises(error):
            writer.put_batch([b"good", bad, b"good"])
    assert store.end_offset == 0
    assert writer.put(b"x").queue_offset == 0


def test_larger_than_a_segment(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        with pytest.raises(MessageTooLargeError, match="chunk=True") as caught:
            store.writer("orders").put_batch([b"x" * 1000] * 5)
        assert store.end_offset == 0
    assert re.fullmatch(
        r"the batch of 5 messages takes 5\d{3} bytes in the log, and a file of the log takes at "
        r"most 4088; put it with chunk=True, or open a new store with "
        r"commit_log_file_size_bytes = 5\d{3} or more",
        str(caught.value),
    )


@pytest.mark.parametrize("face", ["writer", "store", "a task's writer", "a task's store"])
@pytest.mark.parametrize("bound", ["file", "buffer"])
def test_a_batch_in_parts(tmp_path: Path, face: str, bound: str) -> None:
    """Each part is all or none; the result has every place, and an error says what was stored."""
    bodies = [b"%03d" % n + b"x" * 500 for n in range(200)]
    options: dict[str, Any] = {"durability": "os"}
    if bound == "buffer":
        options = {"write_buffer_bytes": 1 << 17, "max_message_size_bytes": 1 << 14}
        options["commit_log_file_size_bytes"] = 1 << 20

    def put(store: Store, bodies: list[bytes]) -> rocketstore.PutResult:
        messages = [NewMessage("orders", body) for body in bodies]
        if face == "writer":
            return store.writer("orders").put_batch(bodies, chunk=True)
        if face == "store":
            return store.put_batch(messages, chunk=True)

        async def task() -> rocketstore.PutResult:
            loop = rocketstore.aio.attach(store)
            if face == "a task's writer":
                return await loop.writer("orders").put_batch(bodies, chunk=True)
            return await loop.put_batch(messages, chunk=True)

        return asyncio.run(task())

    with open_small(tmp_path, **options) as store:
        assert put(store, [b"few"]).size < SEGMENT
        result = put(store, bodies)
        assert (result.count, list(result.queue_offsets)) == (200, [*range(1, 201)])
        assert store.end_offset == result.end_offset > 1 << 16
        assert [store.get(offset).body for offset in result.physical_offsets] == bodies
        end = store.end_offset
        with pytest.raises(MessageTooLargeError):
            put(store, [*bodies, b"x" * 40_000])
        assert store.end_offset == end


@pytest.mark.parametrize("several", [False, True])
def test_larger_than_the_write_buffer(several: bool, tmp_path: Path) -> None:
    """The option that the text names, with its value, is enough."""
    options: dict[str, Any] = {
        "commit_log_file_size_bytes": 1 << 20,
        "max_message_size_bytes": 1000,
        "durability": "disk",
    }
    messages = [rocketstore.NewMessage("orders", b"x" * 1000) for _ in range(500)]
    with rocketstore.open(tmp_path, write_buffer_bytes=1 << 17, **options) as store:
        writer = store.writer("orders")
        with pytest.raises(MessageTooLargeError, match="of the write buffer takes") as caught:
            store.put_batch(messages) if several else writer.put_batch([b"x" * 1000] * 500)
        assert store.end_offset == 0
    said = re.search(r"write_buffer_bytes = (\d+) or more", str(caught.value))
    assert said is not None
    with rocketstore.open(tmp_path, write_buffer_bytes=int(said[1]), **options) as store:
        writer = store.writer("orders")
        if several:
            assert store.put_batch(messages).count == 500
        else:
            assert writer.put_batch([b"x" * 1000] * 500).count == 500


@pytest.mark.parametrize("durability", [None, "memory", "os", "disk"])
def test_an_empty_batch_is_nothing(durability: Any, tmp_path: Path) -> None:
    with open_small(tmp_path, durability="os") as store:
        writer = store.writer("orders", queue_id=3)
        assert writer.put_batch([], durability=durability).queue_id == 3
        for result in (
            writer.put_batch([], durability=durability),
            writer.put_batch(iter(()), durability=durability),
            store.put_batch([], durability=durability),
        ):
            assert (result.count, result.size, result.durability) == (0, 0, durability or "os")
            assert result.physical_offsets == result.queue_ids == list(result.queue_offsets) == []
            assert pickle.loads(pickle.dumps(result)) == result
            store.wait_flushed(result.end_offset)
            assert (repr(result)[:10], result.message_id) == ("PutResult(", "")
        with pytest.raises(ValueError, match="durability = 'fsync'"):
            store.put_batch([], durability="fsync")  # type: ignore[arg-type]
        assert (store.end_offset, store.topics()) == (0, [])
    with pytest.raises(rocketstore.StoreClosedError):
        writer.put_batch([])
    with pytest.raises(rocketstore.StoreClosedError):
        store.put_batch([])


def test_any_iterable(store: Store) -> None:
    assert store.writer("orders").put_batch(bytes([c]) for c in b"abc").count == 3
    assert [m.body for m in everything(dispatched(store))] == [b"a", b"b", b"c"]


def test_a_batch_goes_to_one_queue(store: Store) -> None:
    writer = store.writer("orders", queues=4)
    ids = {writer.put_batch([b"x", b"y"], shard_key="anna").queue_id for _ in range(3)}
    assert len(ids) == 1


def test_counted_message_by_message(store: Store) -> None:
    result = store.writer("orders").put_batch([b"x"] * 5)
    assert store.stats().topics["orders"] == (5, result.size)


@pytest.mark.parametrize("record_crc", [True, False])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, 40])
def test_a_batch_makes_the_bytes_of_single_puts(
    tmp_path: Path, count: int, record_crc: bool, rng: random.Random
) -> None:
    """However a batch is divided inside, its records and checksums are those of single puts."""
    bodies = [rng.randbytes(rng.choice((0, 1, 3, 15, 16, 17, 63, 100))) for _ in range(count)]
    with open_small(
        tmp_path, record_crc=record_crc, commit_log_file_size_bytes=1 << 16, durability="os"
    ) as store:
        writer = store.writer("orders", properties={"region": "eu"})
        batch = writer.put_batch(bodies, tags="paid", born_time=1_700_000_000_000)
        for body, offset in zip(bodies, batch.physical_offsets, strict=True):
            single = writer.put(body, tags="paid", born_time=1_700_000_000_000)
            mine, other = (bytearray(bytes(store.get(o))) for o in (offset, single.physical_offset))
            if record_crc:
                crc = zlib.crc32(mine[:-20]) & 0x7FFFFFFF
                assert mine[-20:] == b"__CRC32#\x01" + f"{crc:010d}"[::-1].encode() + b"\x02"
            # Queue offset, physical offset and store time differ, and so does the record CRC.
            for record in (mine, other):
                record[20:36] = bytes(16)
                record[56:64] = bytes(8)
                if record_crc:
                    record[-20:] = bytes(20)
            assert mine == other


def test_views_in_a_batch_are_given_back(store: Store) -> None:
    """Bodies that are no bytes objects are pinned while they are copied, and no longer; also when a
    later body is refused."""
    first, second = bytearray(b"first"), bytearray(b"second")
    writer = store.writer("orders")
    result = writer.put_batch([b"zero", first, memoryview(second), b"last"])
    for unpinned in (first, second):
        unpinned.append(0)  # BufferError while a view is open
    found = [store.get(offset).body for offset in result.physical_offsets]
    assert found == [b"zero", b"first", b"second", b"last"]
    with pytest.raises(TypeError, match="encode"):
        writer.put_batch([first, "text"])  # type: ignore[list-item]
    with pytest.raises(MessageTooLargeError):
        writer.put_batch([b"", second, bytes(8 << 20)])
    for unpinned in (first, second):
        unpinned.append(0)
    assert store.end_offset == result.end_offset
