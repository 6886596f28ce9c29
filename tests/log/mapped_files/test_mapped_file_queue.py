"""The files of one directory: found by arithmetic, grown, shrunk."""

from __future__ import annotations

import errno
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.mapping import mapped_files
from rocketstore.errors import DiskFullError, StoreReadOnlyError
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from tests.support.file_tools import (
    SIZE,
    Calls,
    blocks,
    created,
    largest_file,
    loaded,
    names,
    open_queue,
    put,
    starts,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "commitlog"
    directory.mkdir()
    (tmp_path / "tmp").mkdir()
    return directory


@pytest.fixture
def queue(directory: Path) -> Iterator[MappedFileQueue]:
    queue = open_queue(directory)
    yield queue
    queue.close()


# ---- where files start ----


@pytest.mark.parametrize(
    ("size", "start"), [(1, 5), (2, 4), (3, 3), (4, 4), (5, 5), (6, 0), (7, 0)]
)
def test_the_first_file_would_contain_the_wanted_offset(
    directory: Path, size: int, start: int
) -> None:
    """S000-55 S000-56 S004-21: the worked table of semantics 4.1, start 5."""
    queue = open_queue(directory, file_size=size)
    assert queue.start_for(5) == start
    file = created(queue, queue.start_for(5), sparse=True)
    assert names(directory) == [f"{start:020d}"]
    assert file.start_offset <= 5 < file.end_offset or size == 1
    queue.close()


def test_a_full_file_is_followed_by_the_next_one(queue: MappedFileQueue, directory: Path) -> None:
    """S000-57 S000-62 S001-03 S001-45 S004-21: last start + size, at the end of the list."""
    for start in (0, SIZE, 2 * SIZE):
        assert queue.end_offset == start
        created(queue, start, sparse=False)
    assert names(directory) == [f"{n * SIZE:020d}" for n in range(3)]
    assert starts(queue) == [0, SIZE, 2 * SIZE]


def test_without_create_the_last_file_is_returned_as_it_is(queue: MappedFileQueue) -> None:
    """S000-58 S004-03."""
    assert (queue.first, queue.last, queue.begin_offset, queue.end_offset) == (None, None, 0, 0)
    file = created(queue, SIZE, sparse=True)
    assert queue.last is file
    assert (queue.begin_offset, queue.end_offset) == (SIZE, 2 * SIZE)


def test_names_of_files_of_one_gibibyte() -> None:
    """S001-02 S001-03."""
    assert [segment_name(n << 30) for n in range(3)] == [
        "00000000000000000000",
        "00000000001073741824",
        "00000000002147483648",
    ]


def test_log_files_have_blocks_and_queue_files_do_not(queue: MappedFileQueue) -> None:
    assert blocks(created(queue, 0, sparse=False)) >= SIZE
    assert blocks(created(queue, SIZE, sparse=True)) < SIZE


def test_a_file_that_does_not_follow_is_refused(queue: MappedFileQueue, directory: Path) -> None:
    created(queue, 0, sparse=True)
    for start in (0, 2 * SIZE):
        with pytest.raises(ValueError, match="does not follow"):
            queue.publish(MappedFile.anonymous(start, SIZE))
    for start in (1, SIZE + 1):
        with pytest.raises(ValueError, match=f"no file starts at {start}"):
            queue.make(start, sparse=True)
    assert len(names(directory)) == 1


def test_what_was_made_apart_is_published_once(queue: MappedFileQueue) -> None:
    file = queue.make(0, sparse=False)
    assert starts(queue) == []
    queue.publish(file)
    queue.publish(file)
    assert queue.files == (file,)


def test_the_directory_of_a_new_queue_is_made(tmp_path: Path) -> None:
    """S004-24."""
    queue = open_queue(tmp_path / "topic" / "0")
    queue.load()
    assert queue.files == ()
    created(queue, 0, sparse=True).close()
    assert names(tmp_path / "topic" / "0") == [segment_name(0)]


def test_without_a_file_size_nothing_can_be_made(directory: Path) -> None:
    queue = loaded(directory, file_size=None)
    assert queue.file_size is None
    assert queue.find(0) is None
    with pytest.raises(ValueError, match="no file size"):
        queue.make(0, sparse=True)
    with pytest.raises(ValueError, match="file_size = 0"):
        open_queue(directory, file_size=0)


def test_a_full_disk_changes_nothing(queue: MappedFileQueue, directory: Path) -> None:
    """S000-32 S000-60: and the same call works again once there is room."""
    created(queue, 0, sparse=False)
    with largest_file(SIZE // 2), pytest.raises(DiskFullError):
        created(queue, SIZE, sparse=False)
    assert names(directory) == [segment_name(0)]
    assert starts(queue) == [0]
    created(queue, SIZE, sparse=False)
    assert starts(queue) == [0, SIZE]


# ---- find ----


def test_find_has_no_fallback_to_the_first_file(directory: Path) -> None:
    """K-46 S001-17 S001-20: an offset that is not there is answered with nothing."""
    for number in (4, 5):
        put(directory, number * SIZE)
    queue = loaded(directory)
    for offset in (-1, 0, 4 * SIZE - 1, 6 * SIZE, 2**62):
        assert queue.find(offset) is None
    assert queue.find(4 * SIZE) is queue.first
    assert queue.find(5 * SIZE - 1) is queue.first
    assert queue.find(5 * SIZE) is queue.last
    queue.close()


@given(present=st.sets(st.integers(0, 12), min_size=1), offset=st.integers(-5, 14 * 16))
@settings(max_examples=60, deadline=None)
def test_find_agrees_with_looking_at_every_file(present: set[int], offset: int) -> None:
    queue = MappedFileQueue(Path("/none"), "private", file_size=16, name="queue")
    queue._set([MappedFile.anonymous(number * 16, 16) for number in sorted(present)])
    found = queue.find(offset)
    wanted = offset // 16 if offset // 16 in present else None
    assert (found.start_offset // 16 if found else None) == wanted


def test_readers_keep_their_snapshot(queue: MappedFileQueue) -> None:
    """S004-17: `files` is replaced whole; nothing changes under a reader."""
    created(queue, 0, sparse=True)
    seen = queue.files
    created(queue, SIZE, sparse=True)
    queue.remove_before(SIZE)
    assert [file.start_offset for file in seen] == [0]
    assert starts(queue) == [SIZE]


def test_threads_find_while_files_come_and_go(
    queue: MappedFileQueue, small_switch_interval: None
) -> None:
    created(queue, 0, sparse=True)
    done = threading.Event()
    wrong: list[int] = []

    def look() -> None:
        while not done.is_set():
            files = queue.files
            offset = files[-1].start_offset
            found = queue.find(offset)
            if found is not None and not found.start_offset <= offset < found.end_offset:
                wrong.append(offset)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 60):
        created(queue, number * SIZE, sparse=True)
        queue.remove_before((number - 1) * SIZE)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- shrink ----


def grown(queue: MappedFileQueue, count: int) -> MappedFileQueue:
    for number in range(count):
        created(queue, number * SIZE, sparse=True)
    return queue


def test_remove_before_takes_whole_files_below_oldest_first(
    queue: MappedFileQueue, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-27."""
    grown(queue, 4)
    calls = Calls(monkeypatch)
    removed = queue.remove_before(3 * SIZE - 1)
    paths = [str(directory / segment_name(n * SIZE)) for n in (0, 1)]
    assert removed == paths
    unlinked = [a[0] for name, a in calls.seen if name == "unlink"]
    assert unlinked == paths
    assert calls.names.index("sync_directory") > max(
        at for at, name in enumerate(calls.names) if name == "unlink"
    )
    assert starts(queue) == [2 * SIZE, 3 * SIZE]
    assert queue.remove_before(0) == []


def test_remove_before_never_takes_the_last_file(queue: MappedFileQueue, directory: Path) -> None:
    grown(queue, 3)
    assert len(queue.remove_before(2**62)) == 2
    assert names(directory) == [segment_name(2 * SIZE)]
    assert queue.remove_before(2**62) == []


def test_a_removed_file_stays_readable_while_it_is_viewed(queue: MappedFileQueue) -> None:
    """K-41 S001-21: no forced unmap; memory goes with the last view (S004-08 S004-09)."""
    grown(queue, 2)
    gc.collect()
    mapped = mapped_files()
    file = queue.files[0]
    file.write(0, b"still here")
    view = file.view(0, 10)
    queue.remove_before(SIZE)
    assert bytes(view) == b"still here"
    assert mapped_files() == mapped
    assert file.closed
    del file, view
    assert mapped_files() == mapped - 1


def test_remove_from_takes_files_last_to_first(
    queue: MappedFileQueue, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S001-29 D-22: files that start at or beyond the cut; the one that holds it stays."""
    grown(queue, 4)
    calls = Calls(monkeypatch)
    removed = queue.remove_from(SIZE + 1)
    assert removed == [str(directory / segment_name(n * SIZE)) for n in (3, 2)]
    assert [a[0] for name, a in calls.seen if name == "unlink"] == removed
    assert "sync_directory" in calls.names[calls.names.index("unlink") :]
    assert starts(queue) == [0, SIZE]
    assert len(queue.remove_from(0)) == 2
    assert names(directory) == []
    assert queue.end_offset == 0


def test_a_failed_removal_leaves_disk_and_list_agreeing(
    queue: MappedFileQueue, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(queue, 4)
    calls = Calls(monkeypatch)
    calls.fail("unlink", None, errno.EROFS)
    with pytest.raises(OSError, match="Read-only") as caught:
        queue.remove_before(3 * SIZE)
    assert caught.value.errno == errno.EROFS
    assert names(directory) == [segment_name(n * SIZE) for n in (1, 2, 3)]
    assert starts(queue) == [SIZE, 2 * SIZE, 3 * SIZE]
    assert "sync_directory" in calls.names  # what has gone is durable


def test_a_name_that_java_has_removed_is_no_failure(
    queue: MappedFileQueue, directory: Path
) -> None:
    grown(queue, 2)
    (directory / segment_name(0)).unlink()
    assert len(queue.remove_before(SIZE)) == 1
    assert starts(queue) == [SIZE]


# ---- access ----


def test_reading_changes_nothing(directory: Path) -> None:
    put(directory, 0, 100)
    queue = loaded(directory, "read")
    for act in (
        lambda: created(queue, SIZE, sparse=True),
        lambda: queue.remove_from(0),
        queue.repair_last,
    ):
        with pytest.raises((StoreReadOnlyError, ValueError)):
            act()
    with pytest.raises(StoreReadOnlyError):
        queue.make(SIZE, sparse=True)
    assert [(path.name, path.stat().st_size) for path in directory.iterdir()] == [
        (segment_name(0), 100)
    ]
    queue.close()


def test_private_changes_stay_in_memory(directory: Path) -> None:
    path = put(directory, 0, fill=b"x")
    queue = loaded(directory, "private")
    assert queue.first is not None
    queue.first.write(0, b"y")
    created(queue, SIZE, sparse=False).write(0, b"z")
    assert queue.end_offset == 2 * SIZE
    queue.remove_from(0)
    assert queue.files == ()
    assert path.read_bytes() == b"x" * SIZE
    assert names(directory) == [segment_name(0)]
    queue.close()


def test_close_gives_up_files_and_keeps_views(directory: Path) -> None:
    """D-36."""
    put(directory, 0, fill=b"x")
    queue = loaded(directory)
    assert queue.first is not None
    view = queue.first.view(0, 3)
    queue.close()
    queue.close()
    assert queue.files == ()
    assert bytes(view) == b"xxx"
