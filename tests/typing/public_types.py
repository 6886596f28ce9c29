"""What a type checker shows to a user. Checked by tests/structure/test_stubs.py, never run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import rocketstore
import rocketstore.aio
from rocketstore.tools import rebuild, repair

store = rocketstore.open("data/orders", durability="disk")
reveal_type(store)  # rocketstore.store.Store

rocketstore.open("data/orders", "r", index_slots=8, durability="os")
rocketstore.open("data/orders", durability="dsik")  # type: ignore[arg-type]
rocketstore.open("data/orders", "w")  # type: ignore[arg-type]
rocketstore.open("data/orders", visible="all")  # type: ignore[arg-type]
rocketstore.StoreConfig(durability="dsik")  # type: ignore[arg-type]
rocketstore.open("data/orders", durabilty="os")  # type: ignore[call-arg]
rocketstore.open("data/orders", index_slots="many")  # type: ignore[arg-type]
rocketstore.aio.open("data/orders", untrusted=True, index_slots=8)
rocketstore.aio.open("data/orders", index_slotz=8)  # type: ignore[call-arg]
rocketstore.aio.open("data/orders", force="yes")  # type: ignore[arg-type]
reveal_type(store.configure(flush_interval_ms=10))  # rocketstore.config.store_config.StoreConfig
store.configure(flush_interval_ms="10")  # type: ignore[arg-type]
store.configure(index_slots=8)  # type: ignore[call-arg]
rocketstore.StoreConfig(**store.config.replace(durability="os").to_dict())
rocketstore.StoreConfig.from_rocketmq({}, recrd_crc=True)  # type: ignore[call-arg]
rebuild("data/orders", index_slots=8)
repair("data/orders", comit_log_dir="a")  # type: ignore[call-arg]

writer = store.writer("orders", queue_id=0)
reveal_type(writer)  # rocketstore.writer.Writer

one = writer.put(b"body", tags="paid", keys=("a", "b"), properties={"region": "eu"})
reveal_type(one)  # rocketstore._native.append.put_result.PutResult
reveal_type(one.physical_offset)  # int
reveal_type(one.durability == "disk")  # bool
reveal_type(one.message_id)  # str
reveal_type(writer.put_batch([b"a", b"b"]).queue_offsets)  # typing.Sequence[int]

writer.put(bytearray(b"body"))
writer.put("body")  # type: ignore[arg-type]
writer.put_batch(b"body")  # type: ignore[arg-type]
writer.put(b"body", durability="dsik")  # type: ignore[arg-type]
store.writer("orders", durability="dsik")  # type: ignore[arg-type]
promise: rocketstore.Durability = "os"
store.trim(before=0)  # type: ignore[call-arg]
store.trim(0)  # type: ignore[call-arg]

ticket = writer.submit(b"body")
reveal_type(ticket.done())  # bool
reveal_type(ticket.result(timeout_s=1.0))  # rocketstore._native.append.put_result.PutResult

consumer = store.consumer("orders", group="billing")
reveal_type(consumer.poll(max_messages=10))  # list[rocketstore._native.format.message.Message]
for message in consumer:
    reveal_type(message.body)  # bytes
    reveal_type(message.queue_offset)  # int
    reveal_type(message.properties)  # dict[str, str]
    reveal_type(message.tags)  # str | None

reveal_type(
    store.query("orders", key="a")
)  # typing.Sequence[rocketstore._native.format.message.Message]
reveal_type(store.topics())  # list[str]
reveal_type(store.flushed_offset)  # int
reveal_type(rocketstore.StoreConfig(flush_interval_ms=10).flush_interval_ms)  # int

try:
    writer.put(b"body")
except rocketstore.DurabilityTimeoutError as error:
    reveal_type(error.result)  # rocketstore._native.append.put_result.PutResult | None
except rocketstore.OffsetOutOfRangeError as error:
    reveal_type(error.minimum)  # int


async def in_a_loop(loop: rocketstore.aio.Store) -> None:
    stored = await loop.put_message("orders", b"a", flag=1)
    reveal_type(stored)  # rocketstore._native.append.put_result.PutResult
    found = await loop.query("orders", "a")
    reveal_type(found)  # list[rocketstore._native.format.message.Message]
    await loop.put_message("orders", b"a", flags=1)  # type: ignore[call-arg]
    await loop.put_message("orders", b"a", queue_id="1")  # type: ignore[arg-type]
    await loop.configure(flush_intervall_ms=1)  # type: ignore[call-arg]


def check_int64(numbers: NDArray[np.int64]) -> None: ...


def columns(writer: rocketstore.Writer, store: rocketstore.Store) -> None:
    bodies = ([0, 1, 2], b"ab")
    writer.put_columns(([0, 1, 2], b"ab"), row_tags=["x", None], row_keys=[["a", "b"], "c"])
    writer.put_columns(([0, 1, 2], b"ab"), row_tags=5)  # type: ignore[arg-type]
    store.put_columns(bodies, topics=["orders"], queue_ids=0, tags=([0, 0, 0], b""))
    store.put_columns(bodies, topics=["orders"], tag=None)  # type: ignore[call-arg]
    store.put_columns(bodies)  # type: ignore[call-arg]
    chunk = store.consumer("orders").poll_columns()
    check_int64(chunk["queue_offset"])
    check_int64(chunk["size"])  # type: ignore[arg-type]
    reveal_type(chunk["body"])  # rocketstore.columns.BytesColumn
    reveal_type(chunk["body"].tolist())  # list[bytes]
    reveal_type(chunk["topic"])  # rocketstore.columns.CodedColumn
    reveal_type(chunk["tags"].tolist())  # list[str | None]
    reveal_type(chunk["properties"][0])  # dict[str, str]
    frames, refused = rocketstore.encode_frames(bodies, topics=["orders"], max_body_bytes=10)
    reveal_type(frames)  # memoryview[int]
    reveal_type(refused)  # dict[int, str]
    store.put_frames(frames)
