"""No rows, no frames and no bodies put nothing: no message, no error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore.aio
from rocketstore import MessageRejectedError, Store
from tests.support.small_store import SMALL, open_small

NONE = (np.zeros(1, np.int64), b"")


def test_no_rows_put_nothing(store: Store) -> None:
    writer = store.writer("t", queues=2, durability="os")
    empty: list[Any] = []
    results = [
        writer.put_columns(([0], b"")),
        writer.put_columns(([0], b""), row_tags=empty, row_keys=empty, queue_ids=empty),
        writer.put_columns(([0], b""), tags="a", keys="k", durability="os"),
        store.put_columns(NONE, topics=["t"], durability="os"),
        store.put_columns(NONE, topics=["t", "u"], topic_rows=empty, durability="os"),
        store.put_frames(b"", durability="os"),
        store.put_frames(bytearray(), durability="os"),
        store.put_frames(rocketstore.encode_frames(NONE, topics=["t"])[0], durability="os"),
    ]
    assert [(r.count, r.end_offset, r.durability) for r in results] == [(0, 0, "os")] * 8
    assert store.put_columns(NONE, topics=["t"]).durability == "disk"
    assert store.put_frames(b"").durability == "disk"
    assert (store.topics(), store.end_offset) == ([], 0)


def test_what_is_wrong_without_rows_is_refused_as_with_them(store: Store) -> None:
    writer = store.writer("t")
    with pytest.raises(MessageRejectedError, match="offsets"):
        writer.put_columns(([], b""))
    with pytest.raises(MessageRejectedError):
        writer.put_columns(([0], b""), row_tags=["a"])
    with pytest.raises(ValueError, match="durability = 'fsync'"):
        writer.put_columns(([0], b""), durability="fsync")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="durability = 'fsync'"):
        store.put_columns(NONE, topics=["t"], durability="fsync")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="durability = 'fsync'"):
        store.put_frames(b"", durability="fsync")  # type: ignore[arg-type]
    assert store.end_offset == 0


def test_an_arrow_array_without_rows_puts_nothing(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")
    with open_small(tmp_path) as store:
        for kind in (pa.binary(), pa.string()):
            assert store.writer("t").put_columns(pa.array([], kind)).count == 0


def test_the_same_in_an_event_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with rocketstore.aio.open(tmp_path, **SMALL) as store:
            assert (await store.writer("t").put_columns(([0], b""))).count == 0
            assert (await store.put_columns(NONE, topics=["t"])).count == 0
            assert (await store.put_frames(b"")).count == 0
            assert store.end_offset == 0

    asyncio.run(main())
