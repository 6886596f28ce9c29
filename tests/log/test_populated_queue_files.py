"""A queue that fills its files fast meets no fresh pages in the one that was made ahead."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from rocketstore.log import next_file
from rocketstore.log.mapped_file_queue import MappedFileQueue
from rocketstore.log.new_file import NewFile
from rocketstore.log.next_file import NextFile

PAGES = 64
SIZE = PAGES * 4096


def faults_of_writing(files: MappedFileQueue, following: NextFile) -> int:
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


def test_pages_of_a_fast_queue_are_there(files: MappedFileQueue) -> None:
    following = NextFile(files)
    faults = [faults_of_writing(files, following) for _ in range(5)]
    assert min(faults[:2]) >= PAGES // 2, "how fast it is shows when the second file is taken"
    assert max(faults[2:]) < PAGES // 4
    for file in files.files:
        assert Path(file.path).read_bytes() == (b"x" + bytes(4095)) * PAGES
    files.close()


def test_a_slow_queue_dirties_nothing_ahead(
    files: MappedFileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_file, "POPULATED_S", 0.0)
    following = NextFile(files)
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
    following = NextFile(files)
    for _ in range(4):
        faults_of_writing(files, following)
    assert [file.start_offset for file in files.files] == [0, SIZE, 2 * SIZE, 3 * SIZE]
    files.close()


def test_one_that_is_not_needed_leaves_nothing(files: MappedFileQueue) -> None:
    following = NextFile(files)
    for _ in range(3):
        faults_of_writing(files, following)
    descriptors = len(os.listdir("/proc/self/fd"))
    mapped = Path("/proc/self/maps").read_text().count("queue")
    assert following.prepare()
    following.drop()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert Path("/proc/self/maps").read_text().count("queue") == mapped
    assert len(list(files.directory.iterdir())) == 3
    files.close()
