"""A queue that fills its files fast meets no fresh pages in the one that was made ahead."""

from __future__ import annotations

import errno
import math
import os
import resource
from pathlib import Path

import pytest

from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.mapped_files.new_file import NewFile
from rocketstore.log.queues import queue_preallocator
from rocketstore.log.queues.queue_preallocator import HURRIED_AHEAD, NextFiles

PAGES = 64
SIZE = PAGES * 4096


def faults_of_writing(files: MappedFileQueue, following: NextFiles) -> int:
    """Takes the next file and writes to each page of it."""
    assert not files.files or following.prepare()
    file, _ = following.take(files.end_offset)
    files.publish(file)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for page in range(PAGES):
        file.write(page * 4096, b"x")
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


@pytest.fixture
def files(tmp_path: Path) -> MappedFileQueue:
    (tmp_path / "tmp").mkdir()
    return MappedFileQueue(
        tmp_path / "queue", "write", file_size=SIZE, name="queue", tmp_directory=tmp_path / "tmp"
    )


@pytest.fixture
def following(files: MappedFileQueue) -> NextFiles:
    """What comes behind the files."""
    return NextFiles(files)


def test_pages_of_a_fast_queue_are_there(files: MappedFileQueue, following: NextFiles) -> None:
    faults = [faults_of_writing(files, following) for _ in range(5)]
    assert min(faults[:2]) >= PAGES // 2, "how fast it is shows when the second file is taken"
    assert max(faults[2:]) < PAGES // 4
    for file in files.files:
        assert Path(file.path).read_bytes() == (b"x" + bytes(4095)) * PAGES
    files.close()


def test_a_slow_queue_dirties_nothing_ahead(
    files: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_preallocator, "POPULATED_S", 0.0)
    following = NextFiles(files)
    faults = [faults_of_writing(files, following) for _ in range(5)]
    assert min(faults) >= PAGES // 2
    files.close()


def test_no_room_for_the_pages_costs_only_time(
    files: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate = NewFile.populate

    def refused(new: NewFile) -> None:
        populate(new)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(NewFile, "populate", refused)
    following = NextFiles(files)
    for _ in range(4):
        faults_of_writing(files, following)
    assert [file.start_offset for file in files.files] == [0, SIZE, 2 * SIZE, 3 * SIZE]
    files.close()


def test_one_that_is_not_needed_leaves_nothing(
    files: MappedFileQueue, following: NextFiles
) -> None:
    for _ in range(3):
        faults_of_writing(files, following)
    following.drop()
    descriptors = len(os.listdir("/proc/self/fd"))
    mapped = Path("/proc/self/maps").read_text().count("queue")
    assert following.prepare()
    following.drop()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert Path("/proc/self/maps").read_text().count("queue") == mapped
    assert len(list(files.directory.iterdir())) == 3
    files.close()


def test_a_queue_in_a_hurry_has_a_few_ahead(files: MappedFileQueue, following: NextFiles) -> None:
    for _ in range(2):
        faults_of_writing(files, following)
    assert following.prepare()
    for _ in range(HURRIED_AHEAD):
        file, whole = following.take(files.end_offset)
        assert whole
        files.publish(file)
    assert not following.take(files.end_offset)[1]
    files.close()


def test_one_that_takes_its_time_has_one(
    files: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_preallocator, "HURRIED_S", 0.0)
    following = NextFiles(files)
    for _ in range(2):
        faults_of_writing(files, following)
    assert following.prepare()
    for whole in (True, False):
        file, found = following.take(files.end_offset)
        assert found == whole
        files.publish(file)
    files.close()


@pytest.mark.parametrize("lasted_s", [0.0, math.inf])
def test_a_file_that_comes_too_late_is_the_next_one(
    files: MappedFileQueue, monkeypatch: pytest.MonkeyPatch, lasted_s: float, following: NextFiles
) -> None:
    """While it was made and synced, the dispatcher needed it and made that one itself."""
    faults_of_writing(files, following)
    made = files.prepare

    def late(start_offset: int, *, sparse: bool) -> NewFile:
        monkeypatch.setattr(files, "prepare", made)
        new = made(start_offset, sparse=sparse)
        file, whole = following.take(start_offset)
        assert not whole
        files.publish(file)
        following._lasted_s = lasted_s
        return new

    monkeypatch.setattr(files, "prepare", late)
    assert following.prepare()
    file, whole = following.take(files.end_offset)
    assert whole, "it was thrown away, and the dispatcher makes the one after it, too"
    assert [made.start_offset for made in files.files] == [0, SIZE]
    assert file.start_offset == 2 * SIZE
    file.close()
    following.drop(closed=True)
    files.close()


def test_one_that_comes_too_late_again_is_closed_once(
    files: MappedFileQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    following: NextFiles,
) -> None:
    """By the time of a second close its descriptor is a file's of another thread."""
    for _ in range(2):
        faults_of_writing(files, following)
    made, populate = files.prepare, NewFile.populate

    def needed() -> None:
        file, whole = following.take(files.end_offset)
        assert not whole
        files.publish(file)
        following._lasted_s = 0.0

    def late(start_offset: int, *, sparse: bool) -> NewFile:
        monkeypatch.setattr(files, "prepare", made)
        new = made(start_offset, sparse=sparse)
        needed()
        return new

    def later(new: NewFile) -> None:
        monkeypatch.setattr(NewFile, "populate", populate)
        populate(new)
        needed()

    monkeypatch.setattr(files, "prepare", late)
    monkeypatch.setattr(NewFile, "populate", later)
    descriptors = len(os.listdir("/proc/self/fd"))
    assert not following.prepare()
    assert caplog.messages == []
    assert len(os.listdir("/proc/self/fd")) == descriptors + 2  # of the two that were needed
    files.close()


def test_what_does_not_fit_goes_with_what_is_behind_it(
    files: MappedFileQueue, following: NextFiles
) -> None:
    for _ in range(2):
        faults_of_writing(files, following)
    assert following.prepare()
    files.publish(files.make(files.end_offset, sparse=False))  # by somebody who did not take
    file, whole = following.take(files.end_offset)
    assert not whole
    files.publish(file)
    assert following.prepare()
    file, whole = following.take(files.end_offset)
    assert whole, "the next ones were made behind those that do not fit"
    file.close()
    following.drop(closed=True)
    files.close()


def test_one_that_was_taken_is_followed_before_it_is_among_the_others(
    files: MappedFileQueue, following: NextFiles
) -> None:
    """The dispatcher took it, and puts it there in a moment."""
    faults_of_writing(files, following)
    file, _ = following.take(files.end_offset)
    assert following.prepare()
    files.publish(file)
    assert following.take(files.end_offset)[1]
    files.close()
