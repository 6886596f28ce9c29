"""A task's part of a bulk load: Arrow record batches to a store of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import rocketstore
from rocketstore import MessageRejectedError, RocketStoreError, Store, encode_frames
from rocketstore.spark.errors import coded_errors
from rocketstore.spark.sink.bad_rows import BadRows
from rocketstore.spark.sink.shards import STAGED, Shard
from rocketstore.spark.sink.staging import Routing, columns_of, parts, refuse

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

__all__ = ["write_shard"]

#: Bytes of columns in one call; with what a record has besides they are one batch of the store.
PART_BYTES = 4 << 20
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
    """Writes the messages of all batches to a new store below `root`, durably; None without a
    message.

    Each attempt has a store of its own, which readers do not find until the job's commit names it.
    One that fails removes it. `shards.make_run` comes first.

    Raises:
        SparkFaceError: RS_BAD_ROW; RS_SHARD_FAILED: the store could not be written, and why, or the
            run is over.
    """
    name = os.path.join(STAGED, run, f"{partition:05d}-{uuid.uuid4().hex}")
    store: Store | None = None
    row, rows = 0, 0
    try:
        for batch in batches:
            for part in parts(batch, PART_BYTES):
                kept, columns = columns_of(part, routing, row, bad_rows)
                if kept.num_rows:
                    with coded_errors("RS_SHARD_FAILED", root / name):
                        store = store or open_new(root / name, routing, file_bytes)
                        refused = put_rows(store, columns, routing)
                    if refused:
                        refuse(kept, refused, routing, row, bad_rows)
                    rows += kept.num_rows - len(refused)
                row += part.num_rows
        if store is None:
            return None
        if not rows:
            remove(store, root / name)
            return None
        size = store.end_offset - store.begin_offset
        with coded_errors("RS_SHARD_FAILED", root / name):
            store.wait_flushed(store.end_offset, WAIT_S)
            store.close()  # all names in it are durable then; its own the commit sees to
    except BaseException:
        remove(store, root / name)
        raise
    return Shard(name, rows, size)


def put_rows(store: Store, columns: dict[str, Any], routing: Routing) -> dict[int, str]:
    """Puts those rows that can be messages; of the others, why not. The store flushes in the
    background."""
    wait: dict[str, Any] = {"durability": "memory", "timeout_s": WAIT_S}
    try:
        store.put_columns(**columns, **wait)
    except MessageRejectedError:  # a row, and nothing is stored; or something else
        frames, refused = encode_frames(**columns, max_body_bytes=routing.max_body_bytes)
        if not refused:
            raise
        if len(frames) and routing.drop_bad_rows:
            store.put_frames(frames, **wait)
        return refused
    return {}


def open_new(path: Path, routing: Routing, file_bytes: int) -> Store:
    make_directory(path)
    return rocketstore.open(
        path,
        durability="os",
        deliver_delayed=False,
        commit_log_file_size_bytes=file_bytes,
        max_message_size_bytes=routing.max_body_bytes,
        max_wait_ms=int(WAIT_S * 1000),
        populate_window_bytes=0,  # all processors are busy with rows: written batches take less
    )


def make_directory(path: Path) -> None:
    """In the directory of its run, which the driver has made and takes away when the run is
    over."""
    try:
        os.mkdir(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            error.errno,
            "the load was given up, or the driver made this directory where no task sees it",
            str(path.parent),
        ) from error


def remove(store: Store | None, path: Path) -> None:
    """All that an attempt has made; also the directories of its run where its store has made them
    again: those of a run that is not over are not empty."""
    if store is not None:
        with contextlib.suppress(RocketStoreError, OSError):
            store.destroy()
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        for directory in path.parents[:2]:
            directory.rmdir()
