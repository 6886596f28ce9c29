"""`_native.os.mapped_file`: what is mapped, who keeps it mapped, what reaches the file."""

from __future__ import annotations

import errno
import io
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import StoreClosedError
from tests.unit.conftest import SIZE

pytestmark = pytest.mark.quick


# ---- making ----


def test_what_a_file_says_of_itself(file: MappedFile, path: Path) -> None:
    """S004-12 S004-25: path, name, offsets, size and descriptor of a file mapped for writing."""
    assert (file.path, file.name) == (str(path), path.name)
    assert (file.start_offset, file.size, file.end_offset) == (81920, SIZE, 81920 + SIZE)
    assert len(file) == SIZE
    assert file.writable
    assert not file.closed
    assert os.path.samestat(os.fstat(file.fd), path.stat())


def test_a_new_instance_is_made_by_the_class_methods_only() -> None:
    with pytest.raises(TypeError, match=r"MappedFile\.open"):
        MappedFile()
    empty = MappedFile.__new__(MappedFile)
    assert empty.closed
    with pytest.raises(StoreClosedError):
        empty.view(0, 0)


def test_a_file_that_is_too_short_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match=f"{SIZE} bytes, {SIZE + 1}"):
        MappedFile.open(path, 0, SIZE + 1, "read")


@pytest.mark.parametrize(("start", "size"), [(0, 0), (0, -1), (-1, 10), (2**63 - 10, 10)])
def test_impossible_places_are_refused(path: Path, start: int, size: int) -> None:
    with pytest.raises(ValueError, match="no file starts at"):
        MappedFile.open(path, start, size, "read")


def test_an_unknown_access_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="'rw'"):
        MappedFile.open(path, 0, SIZE, "rw")  # type: ignore[arg-type]


def test_only_plain_files_are_mapped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="not a plain file") as caught:
        MappedFile.open(tmp_path / "fifo", 0, 4096, "read")
    assert caught.value.filename == str(tmp_path / "fifo")


def test_a_failed_open_leaves_nothing(
    path: Path, probe: Any, mapped: Callable[[], tuple[int, int]]
) -> None:
    """S004-27: errors are raised and the descriptor is closed."""
    before = len(os.listdir("/proc/self/fd"))
    probe.fail("mmap", errno.ENOMEM)
    with pytest.raises(OSError, match="Cannot allocate memory") as caught:
        MappedFile.open(path, 0, SIZE, "write")
    assert caught.value.filename == str(path)
    with pytest.raises(ValueError, match="bytes"):
        MappedFile.open(path, 0, SIZE + 1, "write")
    assert len(os.listdir("/proc/self/fd")) == before
    assert mapped() == (0, 0)


def test_an_adopted_descriptor_belongs_to_the_file(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    file = MappedFile.adopt(fd, path, 0, SIZE)
    assert file.fd == fd
    file.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_a_refused_descriptor_stays_the_callers(path: Path) -> None:
    fd = os.open(path, os.O_RDWR)
    with pytest.raises(ValueError, match="bytes"):
        MappedFile.adopt(fd, path, 0, SIZE + 1)
    os.close(fd)


def test_anonymous_memory_is_zeroed_and_no_file(mapped: Callable[[], tuple[int, int]]) -> None:
    memory = MappedFile.anonymous(7, 10_000)
    assert (memory.start_offset, memory.fd, memory.path) == (7, -1, "")
    assert memory.find_data(0, 10_000) == 10_000
    memory.write(9_999, b"x")
    assert memory.find_data(0, 10_000) == 9_999
    assert mapped() == (0, 0)
    with pytest.raises(io.UnsupportedOperation):
        memory.sync(0, 10)


def test_handles_do_not_pickle(file: MappedFile) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(file)


# ---- bytes ----


def test_bytes_written_are_bytes_of_the_file(file: MappedFile, path: Path) -> None:
    """S004-04"""
    file.write(4090, b"across a page")
    assert file.read(4090, 13) == b"across a page"
    assert path.read_bytes()[4090:4103] == b"across a page"


def test_long_copies_are_whole(tmp_path: Path, random_seed: int) -> None:
    data = random.Random(random_seed).randbytes(1 << 20)
    (tmp_path / "long").write_bytes(bytes(len(data) + 1))
    file = MappedFile.open(tmp_path / "long", 0, len(data) + 1, "write")
    file.write(1, data)
    assert file.read(1, len(data)) == data
    file.zero(1, len(data))
    assert file.find_data(0, len(file)) == len(file)
    file.close()


@pytest.mark.parametrize(
    ("position", "size"),
    [(-1, 1), (0, -1), (0, SIZE + 1), (SIZE, 1), (SIZE + 1, 0), (2**62, 2**62)],
)
def test_ranges_outside_the_file_are_refused(file: MappedFile, position: int, size: int) -> None:
    for reach in (file.view, file.read, file.zero):
        with pytest.raises(ValueError, match="outside"):
            reach(position, size)


def test_the_last_byte_is_inside(file: MappedFile) -> None:
    file.write(SIZE - 1, b"x")
    with pytest.raises(ValueError, match="outside"):
        file.write(SIZE - 1, b"xy")
    assert bytes(file.view(SIZE - 1, 1)) == b"x"
    assert bytes(file.view(SIZE, 0)) == b""


def test_two_mappings_of_a_file_see_each_others_stores(file: MappedFile, path: Path) -> None:
    other = MappedFile.open(path, 81920, SIZE, "read")
    view = other.view(100, 5)
    file.write(100, b"hello")
    assert bytes(view) == b"hello"
    other.close()


def test_a_write_through_the_descriptor_is_seen_in_the_mapping(file: MappedFile) -> None:
    """S004-05"""
    syscalls.pwrite(file.fd, b"committed", 50)
    assert file.read(50, 9) == b"committed"


def test_a_file_for_reading_refuses_writes(path: Path) -> None:
    file = MappedFile.open(path, 0, SIZE, "read")
    assert not file.writable
    for change in (
        lambda: file.write(0, b"x"),
        lambda: file.zero(0, 1),
        lambda: file.sync(0, 1),
        lambda: file.populate(0, 1),
    ):
        with pytest.raises(io.UnsupportedOperation):
            change()
    file.close()


def test_private_changes_never_reach_the_file(path: Path) -> None:
    path.write_bytes(b"original".ljust(SIZE, b"\0"))
    file = MappedFile.open(path, 0, SIZE, "private")
    file.write(0, b"replaced")
    file.zero(8, 4096)
    file.write(SIZE - 3, b"end")
    assert file.read(0, 8) == b"replaced"
    with pytest.raises(io.UnsupportedOperation):
        file.sync(0, SIZE)
    with pytest.raises(io.UnsupportedOperation):
        file.advise("dontneed")
    assert file.read(0, 8) == b"replaced"
    file.close()
    del file
    assert path.read_bytes() == b"original".ljust(SIZE, b"\0")


def test_private_access_needs_no_right_to_write(path: Path) -> None:
    path.chmod(0o400)
    file = MappedFile.open(path, 0, SIZE, "private")
    with pytest.raises(OSError, match="Bad file descriptor"):
        syscalls.pwrite(file.fd, b"x", 0)
    file.close()


# ---- where data is ----


def test_find_data_agrees_with_a_plain_loop(tmp_path: Path, random_seed: int) -> None:
    rng = random.Random(random_seed)
    size = 40 * 4096 + 13
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, size)
    file = MappedFile.open(path, 0, size, "write")
    for _ in range(6):
        file.write(rng.randrange(size), b"\x01")
    # Holes of a tmpfs are memory of its own from its open on.
    private = MappedFile.open(path, 0, size, "private")
    whole = path.read_bytes()
    for _ in range(300):
        low, high = sorted(rng.randrange(size + 1) for _ in range(2))
        part = whole[low:high]
        expected = low + len(part) - len(part.lstrip(b"\0"))
        assert file.find_data(low, high) == expected
        assert private.find_data(low, high) == expected
    file.close()
    private.close()


def test_find_data_sees_what_only_private_memory_holds(path: Path) -> None:
    os.truncate(path, 0)
    os.truncate(path, SIZE)
    file = MappedFile.open(path, 0, SIZE, "private")
    file.write(9000, b"x")
    assert file.find_data(0, SIZE) == 9000
    file.close()


def test_find_data_sees_stores_to_preallocated_blocks(tmp_path: Path) -> None:
    fd = syscalls.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    syscalls.fallocate(fd, 0, 1 << 20)
    file = MappedFile.adopt(fd, tmp_path / "file", 0, 1 << 20)
    assert file.find_data(0, 1 << 20) == 1 << 20
    file.write(700_000, b"x")
    assert file.find_data(0, 1 << 20) == 700_000
    assert file.find_data(700_001, 1 << 20) == 1 << 20
    file.close()


def test_find_data_does_not_read_what_nobody_wrote(tmp_path: Path) -> None:
    """The kernel reads ahead of zeros that somebody wrote, and takes what it read for data from then on:
    looked for step by step, the data of a new segment never ends."""
    size, written = 256 << 20, 1 << 20
    fd = syscalls.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    try:
        syscalls.fallocate(fd, 0, size)
        syscalls.pwrite(fd, bytes(written), 0)
        syscalls.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if os.lseek(fd, 0, os.SEEK_HOLE) != written:
            pytest.skip("this file system does not tell blocks that nobody wrote from holes")
        file = MappedFile.open(tmp_path / "file", 0, size, "read")
        assert file.find_data(0, size) == size
        file.close()
        assert os.lseek(fd, 0, os.SEEK_HOLE) < size // 4
    finally:
        syscalls.close(fd)


def test_find_data_without_knowledge_of_holes(file: MappedFile, probe: Any) -> None:
    file.write(12_345, b"x")
    probe.fail("lseek", errno.EINVAL)
    assert file.find_data(0, SIZE) == 12_345
    assert probe.calls_made() == 1


# ---- memory and disk ----


def test_sync_takes_any_range(file: MappedFile) -> None:
    for low, high in [(0, SIZE), (4095, 4097), (SIZE - 1, SIZE), (5, 5)]:
        file.sync(low, high)
    with pytest.raises(ValueError, match="outside"):
        file.sync(10, 5)


def test_a_failed_sync_is_told_and_not_repeated(file: MappedFile, path: Path, probe: Any) -> None:
    """K-01: the second call would say OK about pages that were dropped."""
    probe.fail("msync", errno.EIO)
    with pytest.raises(OSError, match="Input/output") as caught:
        file.sync(0, 100)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(path))
    assert probe.calls_made() == 1


def test_an_interrupted_sync_is_tried_again(file: MappedFile, probe: Any) -> None:
    """D-10: the kernel says nothing about the pages: they are still dirty."""
    probe.fail("msync", errno.EINTR, times=3)
    file.sync(0, 100)
    assert probe.calls_made() == 4


def test_populate_changes_no_byte(file: MappedFile) -> None:
    file.write(4000, b"kept" * 100)
    before = file.read(0, SIZE)
    file.populate(1, SIZE)
    file.populate(7, 7)
    assert file.read(0, SIZE) == before


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EAGAIN, errno.EINTR])
def test_populate_goes_on(file: MappedFile, probe: Any, error: int) -> None:
    """D-39: EINVAL is a kernel without the advice, which touches the pages instead."""
    file.write(4000, b"kept" * 100)
    before = file.read(0, SIZE)
    probe.fail("madvise", error)
    file.populate(0, SIZE)
    assert file.read(0, SIZE) == before


def test_populate_tells_that_there_is_no_room(file: MappedFile, probe: Any) -> None:
    probe.fail("madvise", errno.EFAULT)
    with pytest.raises(OSError, match="Bad address"):
        file.populate(0, SIZE)


def test_memory_is_locked_where_that_is_allowed(file: MappedFile) -> None:
    """S004-34"""
    assert not file.memory_locked
    assert file.lock_memory() is file.memory_locked
    file.unlock_memory()
    assert not file.memory_locked


def test_refused_locking_is_no_error(file: MappedFile, probe: Any) -> None:
    """D-39"""
    probe.fail("mlock", errno.ENOMEM)
    assert file.lock_memory() is False
    assert not file.memory_locked


@pytest.mark.parametrize(
    "kind",
    ["normal", "random", "sequential", "willneed", "cold", "dontneed", "hugepage", "nohugepage"],
)
def test_advice_changes_no_byte(file: MappedFile, kind: str) -> None:
    file.write(0, b"kept")
    assert file.advise(kind) in (True, False)
    assert file.read(0, 4) == b"kept"


def test_unknown_advice_is_refused(file: MappedFile) -> None:
    with pytest.raises(ValueError, match="'later'"):
        file.advise("later")


def test_anonymous_memory_cannot_be_dropped() -> None:
    with pytest.raises(io.UnsupportedOperation):
        MappedFile.anonymous(0, 4096).advise("dontneed")
