"""Memory stores: pool buffers, the committer, and what is lost with the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore import BackpressureError, Store, StoreConfig, Writer
from tests.support.small_store import (
    DAY_MS,
    STILL,
    dispatched,
    everything,
    log_bytes,
    open_still,
    parts,
    put_many,
    until,
)


@pytest.mark.store(**STILL, durability="memory")
def test_bytes_wait_in_the_buffer(tmp_path: Path, store: Store) -> None:
    """S004-05 S004-14 S002-02: before the commit the file has zeros, and no reader sees the message."""
    result = store.writer("orders").put(b"in the buffer")
    assert log_bytes(tmp_path).strip(b"\0") == b""
    assert store.visible_offset == 0 < result.end_offset
    parts(store).committer.commit()
    assert b"in the buffer" in log_bytes(tmp_path)
    assert store.visible_offset == result.end_offset
    assert store.flushed_offset == 0
    assert everything(dispatched(store))[0].body == b"in the buffer"


@pytest.mark.store(
    durability="memory",
    commit_interval_ms=5,
    commit_thorough_interval_ms=5,
    flush_interval_ms=DAY_MS,
)
def test_commit_happens_by_itself(store: Store) -> None:
    """S000-48 S002-38 S003-44: within the commit interval, without anybody asking."""
    end = store.writer("orders").put(b"x").end_offset
    until(store, lambda: store.visible_offset >= end)
    assert store.flushed_offset == 0


@pytest.mark.store(**STILL, durability="memory", sync_flush_timeout_ms=20_000)
def test_os_promise_in_a_memory_store_commits(tmp_path: Path, store: Store) -> None:
    result = store.writer("orders").put(b"x", durability="os")
    assert b"x" in log_bytes(tmp_path)
    assert result.durability == "os"


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.store("durability", transient_pool_buffers=1)
def test_other_stores_have_no_pool(durability: str, store: Store) -> None:
    """S004-71 S004-31 S004-39: buffers are made for memory stores only; the others never run out."""
    assert parts(store).pool is None
    for _ in range(30):
        store.writer("orders").put(b"x" * 500)


@pytest.mark.store(**STILL, durability="memory", transient_pool_buffers=3)
def test_pool_size_and_buffer_size(store: Store) -> None:
    """S004-33: as many as the option says, each as large as a file of the log."""
    assert StoreConfig().transient_pool_buffers == 5
    pool = parts(store).pool
    assert pool.total == 3
    buffer = pool.borrow()
    assert buffer.size == store.config.commit_log_file_size_bytes
    pool.give_back(buffer)


@pytest.mark.store(**STILL, durability="memory", transient_pool_buffers=4)
def test_a_segment_borrows_and_gives_back(store: Store) -> None:
    """S000-92 S004-15 S004-28: a buffer comes with a new segment and goes once all of it is committed."""
    log, pool, committer = (getattr(parts(store), n) for n in ("commit_log", "pool", "committer"))
    writer = store.writer("orders")
    writer.put(b"x")
    first = log.queue.first
    assert log.path.buffer_of(first) is not None
    free = pool.free
    while store.end_offset < 4096:
        writer.put(b"x" * 900)
    committer.commit()
    assert log.path.buffer_of(first) is None
    assert log.path.buffer_of(log.queue.find(store.end_offset - 1)) is not None
    while store.end_offset < 3 * 4096:
        writer.put(b"x" * 900)
        committer.commit()
    assert pool.free >= free - 1  # nothing leaks over the rolls


@pytest.mark.store(**STILL, durability="memory", transient_pool_buffers=1)
def test_without_a_free_buffer_the_file_is_an_ordinary_one(
    tmp_path: Path, store: Store, writer: Writer
) -> None:
    """S000-89 S004-23 S004-44 S004-45: K-43: written through its mapping, committed, flushed, read."""
    results = [writer.put(b"%02d" % i * 200) for i in range(40)]
    log = parts(store).commit_log
    assert any(log.path.buffer_of(f) is None for f in log.queue.files[1:3])
    store.wait_flushed(results[-1].end_offset)
    assert store.visible_offset == results[-1].end_offset
    assert [m.body for m in everything(dispatched(store))] == [b"%02d" % i * 200 for i in range(40)]
    data = log_bytes(tmp_path)
    assert all(bytes(store.get(r.physical_offset)) in data for r in results)


def test_fast_fail_refuses_instead(tmp_path: Path) -> None:
    """S004-41: with transient_pool_fast_fail a roll without a free buffer is refused, then goes on."""
    store = open_still(tmp_path, "memory", transient_pool_buffers=1, transient_pool_fast_fail=True)
    with store:
        writer = store.writer("orders")
        with pytest.raises(BackpressureError, match="no free write buffer"):
            put_many(writer, 40, 400)
        end, messages = store.end_offset, store.stats().put_messages
        assert end <= 4096
        parts(store).committer.commit()
        assert writer.put(b"small").queue_offset == messages


def test_a_reopened_segment_is_filled_into_its_buffer(tmp_path: Path) -> None:
    """What stood before in the last file is still there after the next commit."""
    with open_still(tmp_path, "memory") as store:
        store.writer("orders").put(b"before")
    with open_still(tmp_path, "memory") as store:
        result = store.writer("orders").put(b"after")
        assert result.queue_offset == 1
        store.wait_flushed(result.end_offset)
        assert [m.body for m in everything(dispatched(store))] == [b"before", b"after"]


@pytest.mark.store(durability="memory", visible="flushed", **STILL)
def test_visible_flushed_waits_for_the_flush(store: Store) -> None:
    group = parts(store).commit_log.log.group
    group.take_turn()  # a flush after the commit may be as fast as this test
    end = store.writer("orders").put(b"x", durability="os").end_offset
    assert store.visible_offset == 0
    group.give_turn()
    store.wait_flushed(end)
    assert store.visible_offset == end
