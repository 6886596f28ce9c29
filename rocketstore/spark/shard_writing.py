"""A task's part of a bulk load: Arrow record batches to a store of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

import rocketstore
from rocketstore import RocketStoreError, Store
from rocketstore.spark.bad_rows import BadRows
from rocketstore.spark.failures import told_path
from rocketstore.spark.journal import sync_directory
from rocketstore.spark.shards import STAGED, Shard
from rocketstore.spark.staging import Routing, encode_batch, parts

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

__all__ = ["write_shard"]

#: A disk that is busy with other shards may take so long to make room.
WAIT_S = 600.0


def write_shard(
    batches: Iterable[pa.RecordBatch],
    root: Path,
    run: str,
    partition: int,
    routing: Routing,
    file_bytes: int,
    bad_rows: BadRows | None = None,
) -> Shard | None:
    """Writes the messages of all batches to a new store below `root`, durably; None without a message.

    Each attempt has a store of its own, which is found by nobody until the job's commit names it. One that
    fails removes it.

    Raises:
        SparkFaceError: RS_BAD_ROW; RS_SHARD_FAILED: the store could not be written, and why.
    """
    name = os.path.join(STAGED, run, f"{partition:05d}-{uuid.uuid4().hex}")
    store: Store | None = None
    row, rows, room = 0, 0, bytearray()
    try:
        for batch in batches:
            for part in parts(batch):
                frames, count = encode_batch(part, routing, row, bad_rows, room)
                row += part.num_rows
                if count:
                    with told_path("RS_SHARD_FAILED", root / name):
                        store = store or open_new(root / name, routing, file_bytes)
                        # Flushed behind our back as it comes; waited for once, below.
                        store.put_frames(frames, durability="memory", timeout_s=WAIT_S)
                    rows += count
                frames.release()
        if store is None:
            return None
        size = store.end_offset - store.begin_offset
        with told_path("RS_SHARD_FAILED", root / name):
            store.wait_flushed(store.end_offset, WAIT_S)
            store.close()
            sync_names(root / name)
    except BaseException:
        if store is not None:
            with contextlib.suppress(RocketStoreError, OSError):
                store.destroy()
        shutil.rmtree(root / name, ignore_errors=True)
        raise
    return Shard(name, rows, size)


def open_new(path: Path, routing: Routing, file_bytes: int) -> Store:
    os.makedirs(path)
    return rocketstore.open(
        path,
        durability="os",
        commit_log_file_size_bytes=file_bytes,
        max_message_size_bytes=routing.max_body_bytes,
        max_wait_ms=int(WAIT_S * 1000),
    )


def sync_names(path: Path) -> None:
    """All names in the tree are durable, as the bytes are since the store was closed."""
    for place, _, _ in os.walk(path):
        sync_directory(path / place)
