"""The next file of a queue is made before it is needed, and its name is on disk before anything relies on it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketstore import Store
from rocketstore.log.layout import disk_blocks
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.mapped_files import new_file
from rocketstore.log.mapped_files.mapped_file_queue import Access, MappedFileQueue
from rocketstore.log.queues import queue_preallocator
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.queue_files import QueueFiles
from rocketstore.log.queues.queue_preallocator import NextFiles, QueuePreallocator
from rocketstore.log.queues.units import UNIT_SIZE
from tests.support.file_tools import blocks, created
from tests.support.small_store import (
    Calls,
    dispatched,
    engine_of,
    everything,
    open_small,
    put_many,
    watched,
)
from tests.support.waiting import wait_until

FILE_UNITS = 8
SIZE = FILE_UNITS * UNIT_SIZE


def make_queue(
    root: Path, ask: Callable[[NextFiles], None], access: Access = "write"
) -> ConsumeQueue:
    (root / "tmp").mkdir(exist_ok=True)
    files = QueueFiles(
        root / "orders",
        access,
        SIZE,
        tmp_directory=root / "tmp",
        make_place=lambda path, _: path.mkdir(exist_ok=True),
        ask_ahead=ask,
    )
    return ConsumeQueue("orders", 0, files, lambda: 0)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Of the modules that make files, in order."""
    return watched(monkeypatch, queue_preallocator, new_file, disk_blocks)


def fill(queue: ConsumeQueue, first: int, end: int) -> None:
    for number in range(first, end):
        queue.put(number, 100 * number, 100, 0)


def prepared(root: Path) -> tuple[ConsumeQueue, NextFiles]:
    """A queue of one full file, and the next one ready."""
    asked: dict[NextFiles, None] = {}
    queue = make_queue(root, lambda following: asked.setdefault(following))
    fill(queue, 0, FILE_UNITS)
    (following,) = asked
    following.sync_names()
    assert following.prepare()
    return queue, following


def test_a_file_that_is_ready_has_no_name(tmp_path: Path) -> None:
    """D-06: whoever looks finds no file behind one that is not full."""
    queue, following = prepared(tmp_path)
    assert following.prepare()  # again is no harm
    assert [path.name for path in (tmp_path / "orders").iterdir()] == [segment_name(0)]
    fill(queue, FILE_UNITS, FILE_UNITS + 1)
    assert sorted(path.name for path in (tmp_path / "orders").iterdir()) == [
        segment_name(0),
        segment_name(SIZE),
    ]
    assert queue.unit(FILE_UNITS) == (100 * FILE_UNITS, 100, 0)
    queue.close()


def test_taking_it_waits_for_no_sync(tmp_path: Path, calls: Calls) -> None:
    queue, _ = prepared(tmp_path)
    calls.made.clear()
    fill(queue, FILE_UNITS, FILE_UNITS + 1)
    assert calls.made == ["link_unnamed"]
    assert blocks(queue.files[-1]) >= SIZE
    queue.close()


def test_units_are_on_disk_with_the_name_of_their_file(tmp_path: Path, calls: Calls) -> None:
    """D-18: a name that was given and not synced is synced with the units, once."""
    queue, _ = prepared(tmp_path)
    fill(queue, FILE_UNITS, FILE_UNITS + 1)
    calls.made.clear()
    queue.sync(FILE_UNITS, FILE_UNITS + 1)
    assert calls.made == ["sync_directory"]
    queue.sync(FILE_UNITS, FILE_UNITS + 1)
    assert calls.made == ["sync_directory"]
    queue.close()


def test_names_that_a_dead_process_gave_are_synced(tmp_path: Path, calls: Calls) -> None:
    """D-18: everybody sees them, but they may not be on disk."""
    left, _ = prepared(tmp_path)
    fill(left, FILE_UNITS, FILE_UNITS + 1)
    left.close()
    calls.made.clear()
    queue = make_queue(tmp_path, lambda _: None)
    queue.sync(0, FILE_UNITS + 1)
    queue.sync(0, FILE_UNITS + 1)
    assert calls.made == ["sync_directory"]
    queue.close()


def test_a_name_is_on_disk_before_there_is_another(tmp_path: Path, calls: Calls) -> None:
    """D-18: what a crash leaves has no gap."""
    queue, following = prepared(tmp_path)
    fill(queue, FILE_UNITS, 2 * FILE_UNITS)
    following.prepare()
    calls.made.clear()
    fill(queue, 2 * FILE_UNITS, 2 * FILE_UNITS + 1)
    assert calls.made == ["sync_directory", "link_unnamed"]
    queue.close()


def test_a_name_that_could_not_be_synced_is_never_believed(tmp_path: Path, calls: Calls) -> None:
    """D-13: the sync is not tried again. Units go on, and every sync of the queue says that it failed."""
    queue, following = prepared(tmp_path)
    fill(queue, FILE_UNITS, 2 * FILE_UNITS)
    calls.errors["sync_directory"] = OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        following.sync_names()
    calls.errors.clear()
    calls.made.clear()
    fill(queue, 2 * FILE_UNITS, 2 * FILE_UNITS + 1)
    with pytest.raises(OSError, match="Input/output"):
        queue.sync(0, 2 * FILE_UNITS)
    assert "sync_directory" not in calls.made
    assert queue.max_offset == 2 * FILE_UNITS + 1
    queue.close()


def test_a_lost_name_is_told_where_many_queues_are_synced_at_once(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-13: the one call for the whole file system may succeed behind a sync that failed."""
    monkeypatch.setattr("rocketstore.log.queues.consume_queue_store.SYNC_EACH_MAX", 0)
    layout = StoreLayout(tmp_path / "s")
    make_directories(layout)
    queues = ConsumeQueueStore(layout, "write", SIZE, lambda: 0)
    queue = queues.add("orders", 0)
    fill(queue, 0, FILE_UNITS)
    assert queue._files.next_files.prepare()
    fill(queue, FILE_UNITS, FILE_UNITS + 1)
    calls.errors["sync_directory"] = OSError(errno.EIO, os.strerror(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        queue._files.next_files.sync_names()
    calls.errors.clear()
    assert not queues.sync([("orders", 0, 0, 1)])
    assert queues.degraded
    queues.close()


def test_what_is_not_needed_leaves_nothing(tmp_path: Path, calls: Calls) -> None:
    """D-07: neither a name nor a descriptor, also where files cannot be without a name."""
    before = len(os.listdir("/proc/self/fd"))
    calls.errors["open_unnamed"] = OSError(errno.EOPNOTSUPP, "no such files here")
    queue, following = prepared(tmp_path)
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    assert queue._files.park()
    assert not list((tmp_path / "tmp").iterdir())
    assert queue.unit(0) == (0, 100, 0)
    assert following.prepare()
    queue.close()
    assert not following.prepare()  # never again
    assert not list((tmp_path / "tmp").iterdir())
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_descriptor_that_cannot_be_closed_keeps_nothing_open(
    tmp_path: Path, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    """D-36: the kernel has given it back; the error is told, and the next queue is closed, too."""
    queue, _ = prepared(tmp_path)
    calls.errors["close"] = OSError(errno.EIO, os.strerror(errno.EIO))
    queue.close()
    assert "not needed, cannot be removed" in caplog.text


def test_no_file_ahead_where_it_would_have_its_name_at_once(tmp_path: Path, calls: Calls) -> None:
    """D-06: the last resort, a file system with neither nameless files nor a place for them."""
    calls.errors["open_unnamed"] = OSError(errno.EOPNOTSUPP, "no such files here")
    files = MappedFileQueue(tmp_path, "write", file_size=SIZE, name="consume queue")
    created(files, 0, sparse=True)
    assert not NextFiles(files).prepare()
    assert [path.name for path in tmp_path.iterdir()] == [segment_name(0)]
    files.close()


def test_one_for_another_place_is_not_taken(tmp_path: Path) -> None:
    """The queue was cut behind its back: the file is made anew, where it belongs."""
    queue, following = prepared(tmp_path)
    fill(queue, FILE_UNITS, 2 * FILE_UNITS)
    assert following.prepare()
    queue.truncate_from(100)
    fill(queue, 1, FILE_UNITS + 1)
    assert [file.start_offset for file in queue.files] == [0, SIZE]
    queue.close()


def test_a_queue_that_is_filled_slowly_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may have 50,000 queues, and a file that waits costs a descriptor."""
    asked: list[NextFiles] = []
    now = [0.0]
    monkeypatch.setattr("rocketstore.log.queues.queue_preallocator.time.monotonic", lambda: now[0])
    queue = make_queue(tmp_path, asked.append)
    for number in range(3 * FILE_UNITS):
        now[0] += 120 / FILE_UNITS + 1
        fill(queue, number, number + 1)
    assert not asked
    queue.close()


class TestMaker:
    def test_prepares_what_is_asked_for(self, tmp_path: Path) -> None:
        """And takes back what was not needed: whoever fails to open never closes."""
        maker = QueuePreallocator(lambda _: None)
        maker.start()
        before = len(os.listdir("/proc/self/fd"))
        queue = make_queue(tmp_path, maker.ask)
        fill(queue, 0, FILE_UNITS)
        wait_until(lambda: bool(queue._files.next_files._ready))
        assert len(os.listdir("/proc/self/fd")) == before + 1
        maker.stop()
        assert not queue._files.next_files._ready
        assert len(os.listdir("/proc/self/fd")) == before
        queue.close()

    def test_none_where_descriptors_are_few(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are for files that must be open."""
        monkeypatch.setattr(queue_preallocator.resource, "getrlimit", lambda _: (63, 63))
        maker = QueuePreallocator(lambda _: None)
        maker.start()
        queue = make_queue(tmp_path, maker.ask)
        fill(queue, 0, FILE_UNITS)
        assert not maker._asked
        maker.stop()
        queue.close()

    def test_asks_nobody_answers_are_forgotten(self, tmp_path: Path) -> None:
        maker = QueuePreallocator(lambda _: None)
        queue = make_queue(tmp_path, maker.ask)
        fill(queue, 0, FILE_UNITS)
        assert not maker._asked
        queue.close()

    def test_a_full_disk_is_left_to_who_needs_the_file(self, tmp_path: Path, calls: Calls) -> None:
        failures: list[BaseException] = []
        maker = QueuePreallocator(failures.append)
        maker.start()
        files = MappedFileQueue(tmp_path, "write", file_size=SIZE, name="q", tmp_directory=tmp_path)
        created(files, 0, sparse=True)
        calls.errors["fallocate"] = OSError(errno.ENOSPC, "no room")
        maker.ask(NextFiles(files))
        wait_until(lambda: not maker._asked)
        assert maker.alive
        assert not failures
        maker.stop()
        files.close()

    def test_no_more_wait_than_there_may_be(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The one that waits longest goes."""
        monkeypatch.setattr(queue_preallocator, "NEXT_MAX", 2)
        maker = QueuePreallocator(lambda _: None)
        maker.start()
        queues = []
        for number in range(4):
            (tmp_path / str(number)).mkdir()
            queue = make_queue(tmp_path / str(number), maker.ask)
            fill(queue, 0, FILE_UNITS)
            queues.append(queue)
            wait_until(lambda: not maker._asked)
        assert [bool(queue._files.next_files._ready) for queue in queues] == [
            False,
            False,
            True,
            True,
        ]
        maker.stop()
        for queue in queues:
            queue.close()

    def test_a_queue_in_a_hurry_counts_with_all_its_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each has a descriptor."""
        monkeypatch.setattr(queue_preallocator, "NEXT_MAX", queue_preallocator.HURRIED_AHEAD + 1)
        maker = QueuePreallocator(lambda _: None)
        maker.start()
        queues = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            queue = make_queue(tmp_path / name, maker.ask)
            fill(queue, 0, 3 * FILE_UNITS)
            wait_until(lambda: not maker._asked)
            queues.append(queue)
        assert [len(queue._files.next_files._ready) for queue in queues] == [
            0,
            queue_preallocator.HURRIED_AHEAD,
        ]
        maker.stop()
        for queue in queues:
            queue.close()


def test_a_store_makes_them_ahead(tmp_path: Path) -> None:
    """From end to end, and nothing is left when it is closed."""
    sizes = {
        "consume_queue_file_size_bytes": 10_000 * UNIT_SIZE,
        "commit_log_file_size_bytes": 8 << 20,
    }
    store: Store = open_small(tmp_path, **sizes)
    with store:
        writer = store.writer("orders")
        for _ in range(9):
            writer.put_batch([b"x"] * 1_000)
            dispatched(store)
        queue = engine_of(store)._queues.get("orders", 0)
        wait_until(lambda: bool(queue._files.next_files._ready))
        writer.put_batch([b"x"] * 2_000)
        assert len(everything(dispatched(store))) == 11_000
        assert len(queue.files) == 2
    assert not list((tmp_path / "rocketstore" / "tmp").iterdir())
    with open_small(tmp_path, **sizes) as store:
        assert len(everything(store)) == 11_000


def test_what_is_made_in_memory_is_not_made_ahead(tmp_path: Path) -> None:
    """A dead store is recovered for reading without a change on disk."""
    asked: list[NextFiles] = []
    queue = make_queue(tmp_path, asked.append, "memory")
    fill(queue, 0, 3 * FILE_UNITS)
    assert not asked
    queue.close()


def test_a_file_that_was_taken_from_the_middle_is_made_again(tmp_path: Path) -> None:
    """D-17: opening such a store made files without end, each behind the last one."""
    with open_small(tmp_path) as store:
        put_many(store.writer("orders"), 45, 10)
    directory = tmp_path / "consumequeue" / "orders" / "0"
    files = sorted(directory.iterdir())
    files[1].unlink()
    shutil.rmtree(tmp_path / "rocketstore")
    (tmp_path / "abort").touch()
    with open_small(tmp_path) as store:
        assert [m.queue_offset for m in everything(store, "orders")] == list(range(45))
    assert sorted(directory.iterdir()) == files


def test_files_in_places_where_none_begins_make_room(tmp_path: Path) -> None:
    """Their units belong elsewhere, and a file with a right name would overlap them."""
    directory = tmp_path / "orders"
    directory.mkdir()
    for start in (UNIT_SIZE, SIZE + 3 * UNIT_SIZE):
        (directory / segment_name(start)).write_bytes(bytes(SIZE))
    queue = make_queue(tmp_path, lambda _: None)
    queue.put(FILE_UNITS + 1, 0, 100, 0)
    assert queue.unit(FILE_UNITS + 1) == (0, 100, 0)
    assert [path.name for path in directory.iterdir()] == [segment_name(SIZE)]
    queue.close()


def test_blocks_are_reserved_in_growing_steps(tmp_path: Path) -> None:
    """D-19: of a file that is hardly written little, of one that is written fast up to twice what it has."""
    files = QueueFiles(
        tmp_path, "write", 1 << 23, tmp_directory=tmp_path, make_place=lambda *_: None
    )
    file = files.file_for(0)
    steps = []
    while (end := files.reserve(file, (steps[-1] if steps else 0) + UNIT_SIZE)) < file.size:
        steps.append(end)
        assert blocks(file) >= end
    assert steps[:7] == [1 << n for n in (16, 17, 18, 19, 20, 21)] + [3 << 20]
    files.close()


def test_a_new_queue_syncs_its_directory_once(tmp_path: Path, calls: Calls) -> None:
    """A store may have 50,000 of them: no name is older than the one that is being given."""
    queue = make_queue(tmp_path, lambda _: None)
    fill(queue, 0, 1)
    queue.sync(0, 1)
    assert calls.made.count("sync_directory") == 1
    queue.close()
