"""Loading a directory, whatever lies there: aliens, gaps, files of another length, and their repair."""

from __future__ import annotations

import errno
import logging
import os
import random
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.mapped_files.mapped_file_queue import Access
from rocketstore.log.mapped_files.mapped_files import descriptor_of
from tests.support.file_tools import SIZE, Calls, blocks, created, loaded, names, put, starts


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "commitlog"
    directory.mkdir()
    (tmp_path / "tmp").mkdir()
    return directory


def test_files_are_loaded_in_order(directory: Path) -> None:
    for number in (2, 0, 1):
        put(directory, number * SIZE, fill=b"%d" % number)
    queue = loaded(directory)
    assert starts(queue) == [0, SIZE, 2 * SIZE]
    assert [file.read(0, 1) for file in queue.files] == [b"0", b"1", b"2"]
    assert (queue.wrong_sizes, queue.gaps, queue.aliens) == ([], [], [])
    queue.close()


def test_alien_names_are_left_alone_with_one_warning_each(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """K-44: directories are skipped without a word, links are never followed."""
    put(directory, 0)
    aliens = ["1" * 19, "9" * 21, "99999999999999999999", "notes.txt", "0000000000000000819x"]
    for name in aliens:
        (directory / name).write_bytes(b"?")
    (directory / segment_name(SIZE)).mkdir()
    (directory / segment_name(2 * SIZE)).symlink_to(directory / segment_name(0))
    aliens.append(segment_name(2 * SIZE))
    with caplog.at_level(logging.WARNING):
        queue = loaded(directory)
    assert starts(queue) == [0]
    assert sorted(queue.aliens) == sorted(aliens)
    for name in aliens:
        assert sum(repr(name) in record.getMessage() for record in caplog.records) == 1
    assert len(names(directory)) == len(aliens) + 2
    queue.close()


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [([SIZE], SIZE), ([SIZE, SIZE, 100], SIZE), ([100, SIZE, SIZE], SIZE), ([SIZE, 100], SIZE),
     ([SIZE, 0], SIZE), ([0, 0], None), ([100, 100, SIZE], SIZE), ([100, SIZE, 100, 200], SIZE)],
)  # fmt: skip
def test_the_file_size_is_taken_from_the_files(
    directory: Path, sizes: list[int], wanted: int | None
) -> None:
    for number, size in enumerate(sizes):
        put(directory, number * SIZE, size)
    queue = loaded(directory, file_size=None)
    assert queue.file_size == wanted
    queue.close()


@pytest.mark.parametrize("access", ["write", "read", "private"])
@pytest.mark.parametrize("size", [1, 4095, SIZE - 1])
def test_a_short_last_file_is_mapped_as_far_as_it_goes(
    directory: Path, access: Access, size: int
) -> None:
    """Format 1.2: nothing is changed before `repair_last`."""
    put(directory, 0)
    path = put(directory, SIZE, size, b"x")
    queue = loaded(directory, access)
    [shape] = queue.wrong_sizes
    assert (shape.path, shape.found_bytes, shape.wanted_bytes) == (str(path), size, SIZE)
    assert shape.last
    last = queue.last
    assert last is not None
    assert last.read(0, last.size) == b"x" * size
    assert queue.find(SIZE + size - 1) is last
    assert queue.find(SIZE + size) is None
    assert queue.end_offset == SIZE + size
    assert path.stat().st_size == size
    queue.close()


def test_repair_is_synced(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-18: a checkpoint may speak of the file afterwards."""
    put(directory, 0, 100, b"x")
    queue = loaded(directory)
    calls = Calls(monkeypatch)
    queue.repair_last()
    assert calls.names.index("fallocate") < calls.names.index("fsync")
    queue.close()


def test_repair_without_room_changes_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(directory, 0, 100, b"x")
    queue = loaded(directory)
    Calls(monkeypatch).fail("fallocate", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        queue.repair_last()
    assert queue.end_offset == 100
    queue.repair_last()
    assert queue.end_offset == SIZE
    queue.close()


def test_an_impossible_start_is_told_and_not_used(directory: Path) -> None:
    (directory / f"{2**63 - 1:020d}").write_bytes(bytes(SIZE))
    queue = loaded(directory)
    assert queue.files == ()
    assert len(queue.wrong_sizes) == 1
    queue.close()


def test_gaps_are_listed(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """K-45."""
    for number in (0, 3, 4, 6):
        put(directory, number * SIZE)
    with caplog.at_level(logging.WARNING):
        queue = loaded(directory)
    assert queue.gaps == [(SIZE, 3 * SIZE), (5 * SIZE, 6 * SIZE)]
    assert "no file for the bytes 8192 to 24576" in caplog.text
    queue.close()


def test_any_lengths_are_loaded_and_found(tmp_path: Path, rng: random.Random) -> None:
    """Never a crash, and never a byte that is in no file or that is found in the wrong one."""
    for round_number in range(60):
        directory = tmp_path / str(round_number)
        directory.mkdir()
        for _ in range(rng.randrange(6)):
            start = rng.choice([rng.randrange(8) * 64, rng.randrange(500)])
            put(directory, start, rng.choice([0, 1, 63, 64, 64, 64, 65, 200]))
        queue = loaded(directory, rng.choice(["write", "read", "private"]), rng.choice([64, None]))
        for offset in range(-1, 800):
            file = queue.find(offset)
            holding = [f for f in queue.files if f.start_offset <= offset < f.end_offset]
            assert holding == ([] if file is None else [file])
            if file is not None:
                assert file.read(offset - file.start_offset, 1) == b"\0"
        queue.close()


def test_repair_gives_a_short_last_file_its_length_and_blocks(directory: Path) -> None:
    path = put(directory, SIZE, 100, b"x")
    queue = loaded(directory)
    last = queue.last
    assert last is not None
    view = last.view(0, 100)
    assert [shape.missing_bytes for shape in queue.wrong_sizes] == [SIZE - 100]
    queue.repair_last()
    assert path.read_bytes() == (b"x" * 100).ljust(SIZE, b"\0")
    assert queue.last is not last
    assert queue.last is not None
    assert queue.last.size == SIZE
    assert blocks(queue.last) >= SIZE
    assert queue.wrong_sizes == []
    queue.repair_last()
    created(queue, 2 * SIZE, sparse=False)
    assert view == b"x" * 100
    queue.close()


def test_an_empty_last_file_is_ignored_and_removed_by_repair(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As RocketMQ since 5.1.4; the name is free again."""
    put(directory, 0)
    path = put(directory, SIZE, 0)
    queue = loaded(directory)
    assert starts(queue) == [0]
    [shape] = queue.wrong_sizes
    assert (shape.found_bytes, shape.last) == (0, True)
    assert path.exists()
    with pytest.MonkeyPatch.context() as patch:
        calls = Calls(patch)
        queue.repair_last()
        assert calls.names == ["unlink", "sync_directory"]
    created(queue, SIZE, sparse=False)
    queue.close()


def test_a_long_last_file_is_read_up_to_the_file_size(directory: Path) -> None:
    """D-21: nothing is cut before recovery, which has kept a copy, says so."""
    path = put(directory, 0, SIZE + 10, b"x")
    queue = loaded(directory)
    assert queue.end_offset == SIZE
    [shape] = queue.wrong_sizes
    assert (shape.found_bytes, shape.wanted_bytes, shape.missing_bytes) == (SIZE + 10, SIZE, 0)
    assert path.stat().st_size == SIZE + 10
    queue.repair_last()
    assert path.read_bytes() == b"x" * SIZE
    assert queue.wrong_sizes == []
    queue.close()


@pytest.mark.parametrize("size", [0, 10, SIZE + 1])
def test_a_wrong_length_in_the_middle_is_told_and_can_be_read(directory: Path, size: int) -> None:
    """K-44 K-45: read-write opens refuse it (D-25); a forced one repairs it."""
    for start, length in ((0, SIZE), (SIZE, size), (2 * SIZE, SIZE)):
        put(directory, start, length, b"x")
    queue = loaded(directory)
    [shape] = queue.wrong_sizes
    assert (shape.found_bytes, shape.last) == (size, False)
    assert queue.gaps == ([] if size else [(SIZE, 2 * SIZE)])  # what is there is told once
    assert queue.find(2 * SIZE) is queue.last
    if size:
        file = queue.find(SIZE)
        assert file is not None
        assert file.read(0, min(size, SIZE)) == b"x" * min(size, SIZE)
    queue.repair_last()
    assert starts(queue) == [0, SIZE, 2 * SIZE]
    assert (queue.gaps, queue.wrong_sizes) == ([], [])
    file = queue.find(SIZE)
    assert file is not None
    assert file.read(0, SIZE) == (b"x" * min(size, SIZE)).ljust(SIZE, b"\0")
    queue.close()


def test_a_file_inside_the_one_before_is_told_and_neither_used_nor_changed(
    directory: Path,
) -> None:
    put(directory, 0, fill=b"a")
    inside = put(directory, 100, 50, fill=b"b")
    put(directory, SIZE, fill=b"c")
    queue = loaded(directory)
    assert starts(queue) == [0, SIZE]
    assert [shape.start_offset for shape in queue.wrong_sizes] == [100]
    queue.repair_last()
    assert inside.read_bytes() == b"b" * 50
    assert [shape.start_offset for shape in queue.wrong_sizes] == [100]
    queue.close()


def test_only_files_that_are_still_synced_have_descriptors(directory: Path) -> None:
    """D-12: many systems give a process 1,024."""
    for number in range(5):
        put(directory, number * SIZE, fill=b"x")
    queue = loaded(directory)

    def owners() -> list[bool]:
        return [file.fd >= 0 for file in queue.files]

    before = len(os.listdir("/proc/self/fd"))
    assert owners() == [False] * 5
    queue.keep_descriptors(2 * SIZE)
    assert owners() == [False] * 2 + [True] * 3
    assert len(os.listdir("/proc/self/fd")) == before + 3
    queue.release_descriptors(4 * SIZE - 1)
    assert owners() == [False] * 3 + [True] * 2
    queue.release_descriptors(2**62)
    assert owners() == [False] * 5
    assert len(os.listdir("/proc/self/fd")) == before
    assert queue.files[0].read(0, 1) == b"x"
    with descriptor_of(queue.files[0]) as descriptor:
        assert os.pread(descriptor, 1, 0) == b"x"
    assert len(os.listdir("/proc/self/fd")) == before
    queue.close()


def test_two_that_keep_a_descriptor_at_once_keep_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(directory, 0)
    queue = loaded(directory)
    [file] = queue.files
    before, real = len(os.listdir("/proc/self/fd")), syscalls.open

    def opening(path: str, flags: int) -> int:
        monkeypatch.undo()
        file.keep_descriptor()  # as another thread may while this one opens
        return real(path, flags)

    monkeypatch.setattr(syscalls, "open", opening)
    file.keep_descriptor()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    queue.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_another_file_under_the_name_is_not_taken_for_the_mapped_one(directory: Path) -> None:
    path = put(directory, 0, fill=b"x")
    queue = loaded(directory)
    [file] = queue.files
    path.rename(path.with_name("away"))
    put(directory, 0, fill=b"y")
    with pytest.raises(OSError, match="another file") as caught, descriptor_of(file):
        pass
    assert caught.value.errno == errno.ESTALE
    assert file.find_data(0, SIZE) == 0, "what is mapped can be looked at all the same"
    queue.close()


@pytest.mark.parametrize("access", ["write", "private"])
def test_what_lies_in_the_place_of_another_is_not_repaired(directory: Path, access: Any) -> None:
    """Neither on disk nor in memory: it would stand in front of good bytes."""
    put(directory, 0, SIZE, b"a")
    put(directory, 40, 20, b"b")
    queue = loaded(directory, access)
    queue.repair_last()
    assert [(file.start_offset, file.size) for file in queue.files] == [(0, SIZE)]
    assert len(queue.wrong_sizes) == 1
    queue.close()


def test_a_short_file_is_made_whole_in_memory(directory: Path) -> None:
    put(directory, 0, SIZE, b"a")
    path = put(directory, SIZE, 20, b"b")
    queue = loaded(directory, "private")
    queue.repair_last()
    assert queue.end_offset == 2 * SIZE
    last = queue.last
    assert last is not None
    assert last.read(0, SIZE) == b"b" * 20 + bytes(SIZE - 20)
    last.write(30, b"c")
    assert path.read_bytes() == b"b" * 20
    queue.close()
