"""Files of an open store that another program cuts: errors for what is gone, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketstore import ReadFailedError, Store, StoreFailedError, Writer
from rocketstore._native.format import queue_file
from tests.support.small_store import (
    dispatched,
    engine_of,
    everything,
    open_small,
    open_still,
    parts,
    segments,
)


def test_a_put_into_a_log_that_was_cut_fails_the_store(tmp_path: Path) -> None:
    """D-13 D-34: the put says that it is refused, and so are all later ones; close leaves no clean mark."""
    store = open_still(tmp_path, "os")
    writer = store.writer("orders")
    writer.put(b"one", durability="disk")
    size = segments(tmp_path)[-1].stat().st_size
    os.truncate(segments(tmp_path)[-1], 0)
    for _ in range(2):
        with pytest.raises(StoreFailedError, match="nothing was stored.*SIGBUS"):
            writer.put(b"two")
    with pytest.raises(StoreFailedError):
        writer.put_batch([b"three", b"four"])
    os.truncate(segments(tmp_path)[-1], size)
    store.close()
    assert (tmp_path / "abort").exists()


@pytest.mark.store(durability="os")
def test_a_full_file_system_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """A tmpfs takes a page for a hole that is read, and has none when it is full."""
    store.writer("orders").put(b"x")
    dispatched(store).flush()
    size = segments(tmp_path)[0].stat().st_size
    os.truncate(segments(tmp_path)[0], 0)
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 10, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(ReadFailedError, match="no room on its file system"):
        store.get(0)
    os.truncate(segments(tmp_path)[0], size)


@pytest.mark.store(durability="os")
def test_a_range_that_cannot_be_read_leaves_the_others(
    tmp_path: Path, store: Store, writer: Writer
) -> None:
    """D-13 D-34: reading goes on behind it, puts go on."""
    while len(segments(tmp_path)) < 3:
        writer.put(b"x" * 500)
    first = everything(dispatched(store))[0]
    os.truncate(segments(tmp_path)[0], 0)
    with pytest.raises(ReadFailedError, match="physical offset 0"):
        store.get(0)
    with pytest.raises(ReadFailedError):
        _ = first.body
    with store.consumer("orders", queue_id=0) as consumer:
        with pytest.raises(ReadFailedError) as caught:
            consumer.poll(100)
        assert "steps over it" in "".join(caught.value.__notes__)
        lost = sum(m.physical_offset < 4096 for m in everything_behind(store))
        assert lost == 0
    end = store.end_offset
    assert store.get(writer.put(b"after").physical_offset).body == b"after"
    assert store.end_offset > end


def everything_behind(store: object) -> list[object]:
    """Messages of the second segment on."""
    found: list[object] = []
    with store.consumer("orders", queue_id=0) as consumer:  # type: ignore[attr-defined]
        for offset in range(100):
            consumer.seek(offset)
            try:
                found += consumer.poll(100)
            except ReadFailedError:
                continue
            if found:
                break
    assert found
    return found


def test_a_queue_file_that_was_cut_degrades_the_queues(tmp_path: Path) -> None:
    """D-13 D-34: puts go on, the queue stands still and says why, and the next open rebuilds it."""
    with open_small(tmp_path, durability="os") as store:
        writer = store.writer("orders")
        writer.put(b"0")
        dispatched(store)
        queue = tmp_path / "consumequeue" / "orders" / "0"
        for path in queue.iterdir():
            size = path.stat().st_size
            os.truncate(path, 0)
        writer.put(b"1")
        with pytest.raises(ReadFailedError):
            everything(store)
        dispatcher = engine_of(store)._dispatcher
        assert dispatcher is not None
        assert dispatcher.stuck is not None
        assert "page of the queue" in dispatcher.stuck[1]
        for path in queue.iterdir():
            os.truncate(path, size)
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert everything(store)[-1].body == b"1"


def test_a_queue_that_cannot_be_read_gets_no_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-17: while the disk does not give its units back, a put to it is refused, again and again: it would
    begin anew at offset 0."""
    with open_small(tmp_path) as store:
        for body in (b"0", b"1"):
            store.writer("orders").put(body)
    with open_small(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(queue_file, "written_units", unreadable)
            for _ in range(3):
                with pytest.raises(ReadFailedError):
                    store.writer("orders").put(b"x")
        assert store.writer("orders").put(b"2").queue_offset == 2
        assert [m.body for m in everything(store)] == [b"0", b"1", b"2"]


def unreadable(*_: object) -> int:
    raise ReadFailedError("the disk failed")


@pytest.mark.store(durability="os")
def test_an_index_file_that_was_cut_is_left_behind(
    tmp_path: Path, store: Store, writer: Writer
) -> None:
    """D-13 D-34 K-58: keys are not indexed any more, everything else goes on."""
    writer.put(b"0", keys="a")
    dispatched(store)
    for path in (tmp_path / "index").iterdir():
        os.truncate(path, 0)
    writer.put(b"1", keys="b")
    dispatched(store)
    index = parts(store).index
    assert index.degraded is not None
    assert [m.body for m in everything(store)] == [b"0", b"1"]


def test_a_page_of_positions_that_was_cut_stops_no_writer(tmp_path: Path) -> None:
    """D-31 D-34: the page is for others; who writes goes on without it."""
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"0")
        os.truncate(tmp_path / "rocketstore" / "positions", 0)
        store.writer("orders").put(b"1")
        assert [m.body for m in everything(store)] == [b"0", b"1"]
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
