"""The commit log over its segments: lookup, bounds, raw appends, failure."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore import BackpressureError, MissingSegmentsError, Store, StoreFailedError
from rocketstore._native.append.raw_append import append_raw
from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.commitlog.commit_log import CommitLog
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from tests.support.file_tools import created
from tests.support.small_store import SEGMENT, engine_of, open_small, open_still, parts, put_many
from tests.support.waiting import wait_until


def queue_of(path: Path, file_size: int = SEGMENT) -> MappedFileQueue:
    (path / "log").mkdir(exist_ok=True)
    (path / "tmp").mkdir(exist_ok=True)
    queue = MappedFileQueue(
        path / "log", "write", file_size=file_size, name="test", tmp_directory=path / "tmp"
    )
    queue.load()
    return queue


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[MappedFileQueue]:
    """Of a new log."""
    queue = queue_of(tmp_path)
    yield queue
    queue.close()


def test_it_uses_a_queue_of_files(store: Store) -> None:
    """S000-07 S004-01: and is none itself; what is put lies in a file of that queue."""
    assert not issubclass(CommitLog, MappedFileQueue)
    log = parts(store).commit_log
    put = store.writer("orders").put(b"x")
    assert isinstance(log.queue, MappedFileQueue)
    [file] = log.queue.files
    assert file.start_offset <= put.physical_offset < file.end_offset


@pytest.mark.parametrize(("size", "start"), [(1, 5), (2, 4), (3, 3), (4, 4), (5, 5), (6, 0)])
def test_start_of_the_file_that_would_hold_5(tmp_path: Path, size: int, start: int) -> None:
    """S000-55 S000-56 S004-21: the offset minus its remainder, for file sizes 1 to 6."""
    assert queue_of(tmp_path, size).start_for(5) == start


def test_last_file_is_given_as_it_is(tmp_path: Path, queue: MappedFileQueue) -> None:
    """S000-58: looking never makes a file."""
    assert queue.files == ()
    made = created(queue, 0, sparse=False)
    assert queue.last is made
    assert len(list((tmp_path / "log").iterdir())) == 1


def test_making_a_file_tells_its_error(tmp_path: Path, queue: MappedFileQueue) -> None:
    """S000-60 S004-27: made in place, whole, or the error is raised and nothing is left."""
    file = queue.make(SEGMENT, sparse=False)
    assert (file.start_offset, file.size, Path(file.path).name) == (
        SEGMENT,
        SEGMENT,
        f"{SEGMENT:020d}",
    )
    with pytest.raises(FileExistsError):
        queue.make(SEGMENT, sparse=False)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert queue.files == ()
    file.close()


def test_a_file_has_size_name_offset_and_mapping(queue: MappedFileQueue) -> None:
    """S004-13: everything that a mapped file is known by."""
    file = created(queue, 2 * SEGMENT, sparse=False)
    assert (file.size, file.start_offset, file.end_offset) == (SEGMENT, 2 * SEGMENT, 3 * SEGMENT)
    assert file.name == f"{2 * SEGMENT:020d}"
    assert file.fd >= 0
    file.write(10, b"abc")
    assert bytes(file.view(10, 3)) == Path(file.path).read_bytes()[10:13] == b"abc"


def test_minimum_is_the_first_file_that_is_there(store: Store) -> None:
    """S001-17 S001-18: of the next one, once the first is gone."""
    log = parts(store).commit_log
    for _ in range(12):
        store.writer("orders").put(b"x" * 900)
    assert log.begin_offset == 0
    log.queue.remove_before(SEGMENT)
    assert log.begin_offset == SEGMENT


def test_maximum_is_the_end_of_what_is_written(store: Store) -> None:
    """S001-19: not the end of the file."""
    log = parts(store).commit_log
    assert store.end_offset == 0
    result = store.writer("orders").put(b"x")
    assert store.end_offset == result.end_offset < log.queue.end_offset


def test_data_from_an_offset_to_the_end_of_its_file(queue: MappedFileQueue) -> None:
    """S001-20: the file is found by arithmetic, the place is offset mod size; no fallback (K-46)."""
    for number in (1, 2, 3):
        created(queue, number * SEGMENT, sparse=False).write(100, b"file %d" % number)
    file = queue.find(2 * SEGMENT + 100)
    assert file is not None
    assert file.read(100, SEGMENT - 100).startswith(b"file 2")
    assert [queue.find(offset) for offset in (-1, 0, SEGMENT - 1, 4 * SEGMENT)] == [None] * 4
    assert queue.find(4 * SEGMENT - 1) is queue.last


def test_end_of_the_file_of_an_offset(queue: MappedFileQueue) -> None:
    """S001-68: rollNextFile: offset + size − offset mod size."""
    for number in range(3):
        created(queue, number * SEGMENT, sparse=False)
    for offset in (0, 1, SEGMENT - 1, SEGMENT, 2 * SEGMENT + 7):
        file = queue.find(offset)
        assert file is not None
        assert file.end_offset == offset + SEGMENT - offset % SEGMENT


def test_raw_append_at_the_end_only(tmp_path: Path) -> None:
    """S001-67: bytes as they are at exactly `start`; the first file begins where they belong."""
    with open_small(tmp_path / "from") as store:
        store.writer("orders").put(b"one", durability="disk")
        data = (tmp_path / "from/commitlog" / ("0" * 20)).read_bytes()[: store.end_offset]
    with open_small(tmp_path / "to", durability="os") as store:
        log = parts(store).commit_log.log
        with pytest.raises(ValueError, match="0"):
            append_raw(log, 7, data)
        append_raw(log, 0, data)
        assert store.end_offset == len(data)
        assert store.get(0).body == b"one"


def test_append_gets_the_room_that_is_left(tmp_path: Path) -> None:
    """S001-70 S004-62: the same message goes to this file or to the next by its free bytes alone."""
    free = []
    with open_small(tmp_path, durability="os") as store:
        writer = store.writer("t")
        for size in (0, 3000, 3800, 3871, 3872, 3873):
            writer.put(b"x" * (SEGMENT - 8 - 112 - 10))  # a record that fills all but 10 + 8 bytes
            end = store.end_offset
            result = writer.put(b"x" * size)
            free.append((SEGMENT - end % SEGMENT, result.physical_offset % SEGMENT))
    assert {room for room, _ in free} == {18}
    assert {start for _, start in free} == {0}


def test_start_needs_the_segment_of_the_end(store: Store) -> None:
    store.writer("t").put(b"x")
    log = parts(store).commit_log
    with pytest.raises(MissingSegmentsError):
        log.start(5 * SEGMENT + 1, 0, 0)


def test_a_failed_log_tells_the_first_cause(store: Store) -> None:
    log = parts(store).commit_log
    cause = OSError(5, "first")
    log.fail(cause)
    log.fail(OSError(28, "second"))
    assert repr(log.failure) == repr(cause)
    assert isinstance(log.refusal(), StoreFailedError)
    assert repr(log.refusal().__cause__) == repr(cause)


def test_dispatch_that_stands_still_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-15: bytes that are visible and not dispatched are bounded, and the error says which bound."""
    store = open_still(
        tmp_path,
        "os",
        commit_log_file_size_bytes=1 << 20,
        max_undispatched_bytes=1 << 16,
        max_wait_ms=50,
    )
    with store:
        dispatcher = engine_of(store)._dispatcher
        assert dispatcher is not None
        monkeypatch.setattr(dispatcher, "step", lambda: None)
        monkeypatch.setattr(dispatcher, "catch_up", lambda *_: None)
        writer = store.writer("orders")
        with pytest.raises(BackpressureError, match=r"dispatched = \d+ \(bound 65536"):
            put_many(writer, 300, 1000)
        monkeypatch.undo()
        dispatcher.wake()
        writer.put(b"x")


@pytest.mark.store(durability="os")
def test_a_put_that_comes_late_for_a_roll_takes_no_further_segment(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """Two puts find the segment full, one has rolled when the other asks: it would wait for a segment that nobody
    needs yet, with the lock of all who roll."""
    log = parts(store).commit_log
    put = store.writer("t").put
    real = log.next_segment
    put(b"the first segment")

    def next_segment() -> None:
        real()
        put(bytes(SEGMENT // 8))  # of another thread, which rolls
        files = len(log.queue.files)
        real()
        assert len(log.queue.files) == files
        asked.append(files)

    asked: list[int] = []
    monkeypatch.setattr(log, "next_segment", next_segment)
    while not asked:
        put(bytes(SEGMENT // 8))
    assert asked == [2]
    assert store.end_offset < 2 * SEGMENT


@pytest.mark.store(durability="os")
def test_a_put_that_rolls_waits_for_no_directory(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """The next segment has both its names, on disk, before it is needed."""
    preallocator = parts(store).preallocator
    put = store.writer("t").put
    here = threading.get_ident()
    made: list[str] = []

    def note(path: str) -> None:
        if threading.get_ident() == here:
            made.append(path)
        sync(path)

    sync = syscalls.sync_directory
    monkeypatch.setattr(syscalls, "sync_directory", note)
    while store.end_offset < 4 * SEGMENT:
        if store.end_offset % SEGMENT > 3 * SEGMENT // 4:
            wait_until(lambda: preallocator.spare() is not None)
        put(bytes(SEGMENT // 8))
    assert made == []


def test_a_segment_that_was_made_ahead_goes_with_both_its_names(tmp_path: Path) -> None:
    """The next open would bring it back by the second."""
    with open_small(tmp_path, durability="os") as store:
        put_many(store.writer("t"), 6, SEGMENT // 8)
        wait_until(lambda: parts(store).preallocator.spare() is not None)
        assert len(list((tmp_path / "rocketstore" / "live").iterdir())) == 2
    assert list((tmp_path / "rocketstore" / "live").iterdir()) == []
    assert len(list((tmp_path / "commitlog").iterdir())) == 1


@pytest.mark.store(durability="os")
def test_a_roll_that_failed_goes_on_in_the_segment_that_it_had(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """D-16: the put that was refused leaves no file between two segments of the log."""
    put_many(store.writer("t"), 1, SEGMENT // 8)
    live, failed = parts(store).live, []
    add = live.add

    def fail_once(file: MappedFile) -> None:
        if not failed:
            failed.append(file.start_offset)
            raise OSError(errno.EIO, "Input/output error")
        add(file)

    monkeypatch.setattr(live, "add", fail_once)
    with pytest.raises(OSError, match="Input/output"):
        put_many(store.writer("t"), 20, SEGMENT // 8)
    assert failed == [SEGMENT]
    put_many(store.writer("t"), 20, SEGMENT // 8)
    files = parts(store).commit_log.queue.files
    used = [file for file in files if file.start_offset < store.end_offset]
    assert [file.start_offset for file in used] == [n * SEGMENT for n in range(len(used))]
    assert len(used) > 3
    assert all(any(file.read(0, 8)) for file in used)
