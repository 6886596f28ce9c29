"""Opens and closes that fail half way: the error is told, and nothing stays open, locked or running."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rocketstore import RocketStoreError
from rocketstore._native.format import index_file
from rocketstore.log.commitlog import checkpoint, committer
from rocketstore.log.follow import log_view
from rocketstore.log.follow import writer_monitor as writer_watch
from rocketstore.log.index import segment as index_segment
from rocketstore.log.layout import disk_blocks, lock
from rocketstore.log.layout import positions_page as positions
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.mapped_files import second_names
from rocketstore.tools import verify
from tests.support.small_store import Calls, dispatched, open_small, parts, until, watched


def full() -> OSError:
    """A new one each time: what was raised holds the frames that it went through."""
    return OSError(errno.EDQUOT, "Disk quota exceeded")


def failing(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> Calls:
    """Calls of `name` by one module fail until `errors` is emptied."""
    calls = watched(monkeypatch, module)
    calls.errors[name] = full()
    return calls


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def open_locks(root: Path) -> int:
    """Descriptors of the file `lock`."""
    gc.collect()
    fds = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    return sum(fd.exists() and fd.samefile(root / "lock") for fd in fds)


def bodies(root: Path) -> list[bytes]:
    with open_small(root) as store, store.consumer("t") as consumer:
        return [bytes(message.body) for message in consumer]


def test_a_close_that_fails_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-36: each step of the end is taken although one fails; the error is told, `abort` stays."""
    before = descriptors()
    store = open_small(tmp_path)
    store.writer("t").put(b"x")
    calls = failing(monkeypatch, lock, "unlink")
    with pytest.raises(OSError, match="quota"):
        store.close()
    calls.errors.clear()
    assert store.closed
    assert StoreLock.probe(StoreLayout(tmp_path)) is None
    assert descriptors() <= before
    assert (tmp_path / "abort").exists()
    assert bodies(tmp_path) == [b"x"]


def test_a_close_that_fails_early_marks_nothing_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-03 D-13: what was not done in front of the clean mark keeps it away."""
    store = open_small(tmp_path)
    store.writer("t").put(b"x")
    monkeypatch.setattr(parts(store).completions, "close", lambda: _raise(full()))
    with pytest.raises(OSError, match="quota"):
        store.close()
    assert (tmp_path / "abort").exists()
    assert StoreLock.probe(StoreLayout(tmp_path)) is None
    assert bodies(tmp_path) == [b"x"]


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (checkpoint, "fdatasync"),
        (disk_blocks, "fallocate"),
        (second_names, "link"),
        (lock, "fsync"),
    ],
)
def test_an_open_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """D-36: no lock, no descriptor, no thread; the next open works."""
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")
    before, threads = descriptors(), threading.active_count()
    with monkeypatch.context() as patch:
        failing(patch, module, name)
        with pytest.raises(OSError, match="quota"):
            open_small(tmp_path)
    assert descriptors() <= before
    assert threading.active_count() == threads
    assert bodies(tmp_path) == [b"x"]


def test_an_open_without_a_thread_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-36: some workers run, the next one cannot be started: a typed error, all of them end."""
    threads = threading.active_count()
    started: list[threading.Thread] = []

    def start(thread: threading.Thread, real: Any = threading.Thread.start) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        real(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match="no thread for rocketstore") as caught:
            open_small(tmp_path)
    assert caught.value.errno == errno.EAGAIN
    assert threading.active_count() == threads
    open_small(tmp_path).close()


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_listener_without_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-36: and one whose thread runs ends with an open that fails later."""
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OSError, match="no thread for rocketstore-arrivals"):
            open_small(tmp_path, on_arrival=lambda *_: None)
    threads = threading.active_count()
    with monkeypatch.context() as patch:
        failing(patch, second_names, "link")
        patch.setattr(positions.PositionsPage, "go_live", lambda _: _raise(full()))
        with pytest.raises(OSError, match="quota"):
            open_small(tmp_path, on_arrival=lambda *_: None)
    assert threading.active_count() == threads


def test_a_ticket_without_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-36: the message is in the log, its ticket cannot be watched; the store goes on and closes."""
    with open_small(tmp_path) as store:
        writer = store.writer("t")
        ticket = writer.submit(b"x", durability="disk")
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OSError, match="no thread for rocketstore-completions"):
            ticket.add_done_callback(lambda _: None)
            ticket.future()
        monkeypatch.undo()
        assert ticket.result(10).queue_offset == 0
    assert bodies(tmp_path) == [b"x"]


def test_a_verify_without_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-36"""
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(OSError, match="no thread for a scan"):
        verify(tmp_path)


def test_a_follower_that_fails_leaves_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-36: what it opened to look at the lock is closed again."""
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")
        before = open_locks(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(log_view.LogView, "list", lambda _: _raise(full()))
            with pytest.raises(OSError, match="quota"):
                open_small(tmp_path, "r")
        assert open_locks(tmp_path) == before


def test_a_destroy_that_fails_leaves_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-36: what is left can be destroyed by the next one."""
    from rocketstore.log.layout import destroy

    root = tmp_path / "store"
    store = open_small(root)
    store.writer("t").put(b"x")
    calls = failing(monkeypatch, destroy, "unlink")
    with pytest.raises(OSError, match="quota"):
        store.destroy()
    calls.errors.clear()
    assert StoreLock.probe(StoreLayout(root)) is None
    open_small(root).destroy()
    assert not root.exists()


def test_an_index_file_that_cannot_be_mapped(tmp_path: Path, probe: Any) -> None:
    """D-13: the index degrades; its file's descriptor goes."""
    path = tmp_path / "20260101000000000"
    before = descriptors()
    probe.fail("mmap", errno.ENOMEM)
    with pytest.raises(OSError, match="Cannot allocate"):
        index_segment.create_segment(
            path, index_segment.Shape(16, 64), bytes(index_file.HEADER_SIZE), tmp_path
        )
    probe.restore()
    assert descriptors() == before


def test_a_failed_checkpoint_of_a_trim_fails_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-13: whoever asked for it, the store latches; its close does not write the same again."""
    store = open_small(tmp_path)
    writer = store.writer("t")
    for _ in range(20):
        writer.put(bytes(900))
    calls = failing(monkeypatch, checkpoint, "fdatasync")
    with pytest.raises(OSError, match="quota"):
        store.trim(before_offset=8192)
    tried = calls.made.count("fdatasync")
    assert repr(parts(store).commit_log.failure) == repr(calls.errors.pop("fdatasync"))
    store.close()
    assert calls.made.count("fdatasync") == tried
    assert (tmp_path / "abort").exists()
    assert len(bodies(tmp_path)) == 20


def test_the_generation_is_taken_although_the_other_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-13 D-40: our checkpoint was stored, RocketMQ's not: the next save does not store the same number."""
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x", durability="disk")
        checkpointer = parts(store).checkpointer
        generation = checkpointer.last.generation
        monkeypatch.setattr(checkpointer._rocketmq, "store", lambda *_: _raise(full()))
        with pytest.raises(OSError, match="quota"):
            checkpointer.save(derived=False)
        assert checkpointer.last.generation == generation + 1


def test_a_roll_that_fails_leaves_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: a segment that was made, but could not be linked a second time, is the next one still."""
    with open_small(tmp_path) as store:
        writer = store.writer("t")
        writer.put(b"first")
        calls = failing(monkeypatch, second_names, "link")
        put = 1
        with contextlib.suppress(OSError):
            while put < 20:
                writer.put(bytes(900))
                put += 1
        assert 1 < put < 20
        with pytest.raises(OSError, match="quota"):
            writer.put(bytes(900))
        calls.errors.clear()
        result = writer.put(bytes(900))
        assert result.physical_offset == 4096
        assert result.queue_offset == put
    assert len(bodies(tmp_path)) == put + 1


def test_a_last_sync_that_degrades_the_index_is_no_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-03 D-13: the save that carries the clean mark finds it out; the next open indexes nothing twice."""
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x", keys="k")
    store = open_small(tmp_path)
    store.writer("t").put(b"y", keys="k")
    monkeypatch.setattr(index_segment.IndexSegment, "sync", lambda _: _raise(full()))
    store.close()
    monkeypatch.undo()
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "unclean"
        assert len(store.query("t", "k")) == 2
    assert verify(tmp_path, index_slots=16, index_entries=64).faults == ()


def test_no_index_file_is_synced_again_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-13: also when several files failed."""
    with open_small(tmp_path, consume_queue_flush_interval_ms=86_400_000) as store:
        writer = store.writer("t")
        for number in range(150):
            result = writer.put(b"x", keys=f"k{number}", durability="memory")
        until(store, lambda: store.dispatched_offset >= result.end_offset)
        index = parts(store).index
        assert len(index.files) > 1
        tried: list[str] = []

        def refuse(segment: index_segment.IndexSegment) -> None:
            tried.append(segment.name)
            raise full()

        monkeypatch.setattr(index_segment.IndexSegment, "sync", refuse)
        assert not index.sync()
        assert not index.sync()
        assert len(tried) == len(set(tried)) == len(index.files)


def test_a_failed_commit_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-13: neither by the committer nor by the flusher, which commits for who waits for the disk."""
    still = {"commit_interval_ms": 86_400_000, "wake_commit_on_put": False}
    store = open_small(tmp_path, durability="memory", **still)
    store.writer("t").put(b"x", durability="disk")
    calls = failing(monkeypatch, committer, "pwrite")
    for _ in range(3):
        with pytest.raises(RocketStoreError):
            store.writer("t").put(b"y", durability="disk")
    for _ in range(2):
        with pytest.raises(OSError, match="quota"):
            parts(store).committer.commit()
    store.close()
    assert calls.made == ["pwrite"]
    assert bodies(tmp_path)[:1] == [b"x"]


def test_an_error_is_not_its_own_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: who follows the causes of an error comes to an end."""
    with open_small(tmp_path) as store:
        calls = watched(monkeypatch, disk_blocks)
        calls.errors["fallocate"] = OSError(errno.EIO, "Input/output error")
        with pytest.raises(OSError, match="Input/output") as caught:
            store.writer("t").put(b"x")
        seen: list[BaseException] = []
        error: BaseException | None = caught.value
        while error is not None:
            assert error not in seen
            seen.append(error)
            error = error.__cause__
        calls.errors.clear()


def test_a_watch_closes_the_lock_whatever_becomes_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-36"""
    with open_small(tmp_path):
        before = open_locks(tmp_path)
        watch = writer_watch.WriterMonitor(StoreLayout(tmp_path))
        watch.see()
        monkeypatch.setattr(positions.PositionsPage, "close", lambda _: _raise(full()))
        with pytest.raises(OSError, match="quota"):
            watch.close()
        monkeypatch.undo()
        assert open_locks(tmp_path) == before


def test_readers_that_nobody_closed_leave_no_descriptor(tmp_path: Path) -> None:
    """D-36: as their mappings, it goes with them."""
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")
        dispatched(store)
        before = open_locks(tmp_path)
        for _ in range(3):
            assert len(open_small(tmp_path, "r").consumer("t").poll()) == 1
        assert open_locks(tmp_path) == before
