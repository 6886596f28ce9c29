"""Writes of a flush: on disk when they return, and a kill leaves all or nothing."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from rocketstore._native.os.durable_write import write_durable_head_last, write_head_last

pytestmark = pytest.mark.quick

PAGE = resource.getpagesize()


@pytest.mark.parametrize("write", [write_durable_head_last, write_head_last])
@pytest.mark.parametrize("offset", [0, 100, PAGE - 1])
def test_the_first_page_is_written_last(
    tmp_path: Path, write: Callable[[int, memoryview, int], None], offset: int
) -> None:
    """D-37: a write that ends early, as a kill ends it, leaves no beginning of a record."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8 * PAGE))
    data = b"x" * (3 * PAGE)
    fd = os.open(path, os.O_RDWR)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * PAGE, before[1]))
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as caught:
            write(fd, memoryview(data), offset)
        assert caught.value.errno == errno.EFBIG
        first = PAGE - offset
        assert os.pread(fd, first, offset) == bytes(first)
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        write(fd, memoryview(data), offset)
        assert os.pread(fd, len(data), offset) == data
        assert os.pread(fd, offset, 0) == bytes(offset)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        os.close(fd)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = syscalls.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def test_a_durable_write(file: int) -> None:
    write_durable_head_last(file, b"abc", 7)
    assert syscalls.pread(file, 100, 0) == bytes(7) + b"abc"


@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize("size", [3, PAGE - 7, PAGE, 3 * PAGE])
def test_zeros_come_behind_a_durable_write(file: int, probe: Any, size: int, refused: bool) -> None:
    """D-10 D-11: with what lies in one page in one call, else before the page that comes last."""
    syscalls.pwrite(file, b"\xff" * 5 * PAGE, 0)
    probe.fail("pwritev2", errno.ENOSYS, times=int(refused))
    write_durable_head_last(file, b"x" * size, 7, bytes(PAGE + 1))
    assert probe.calls_made() == int(7 + size <= PAGE)
    there = b"\xff" * 7 + b"x" * size + bytes(PAGE + 1)
    assert syscalls.pread(file, 5 * PAGE, 0) == there.ljust(5 * PAGE, b"\xff")


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_durable_write_without_the_flag_syncs(file: int, probe: Any, error: int) -> None:
    """D-39"""
    probe.fail("fdatasync", error, times=0)
    probe.fail("pwritev2", error)
    write_durable_head_last(file, b"abc", 0)
    assert probe.calls_made() == 2  # pwritev2 was refused, then fdatasync
    assert syscalls.pread(file, 100, 0) == b"abc"


def test_a_durable_write_tells_a_failed_sync(file: int, probe: Any) -> None:
    probe.fail("pwritev2", errno.ENOSYS)
    probe.fail("fdatasync", errno.ENOSYS, times=2)  # the flag is refused, then the sync fails
    with pytest.raises(OSError, match="not implemented") as caught:
        write_durable_head_last(file, b"abc", 0)
    assert caught.value.errno == errno.ENOSYS


def test_a_durable_write_tells_a_failed_write(file: int, probe: Any) -> None:
    probe.fail("pwritev2", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        write_durable_head_last(file, b"abc", 0)
    assert probe.calls_made() == 1


@pytest.mark.parametrize("write", [write_durable_head_last, write_head_last])
def test_a_full_disk_is_told(write: Callable[[int, bytes, int], None]) -> None:
    fd = syscalls.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space") as caught:
            write(fd, b"x", 0)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == "/dev/full"
    finally:
        os.close(fd)


def test_signals_and_short_writes_do_not_end_it(file: int, probe: Any) -> None:
    probe.fail("pwrite", errno.EINTR, times=2, at_most=7)
    data = bytes(range(100))
    write_head_last(file, data, PAGE - 50)
    assert syscalls.pread(file, 100, PAGE - 50) == data
    probe.restore()
    probe.fail("pwritev2", errno.EINTR, times=3)
    write_durable_head_last(file, b"abc", 0)
    assert probe.calls_made() == 4
    assert syscalls.pread(file, 3, 0) == b"abc"
    probe.restore()
    probe.fail("pwrite", errno.EINTR, times=2, at_most=7)
    write_durable_head_last(file, data, PAGE - 50, bytes(20))
    assert syscalls.pread(file, 120, PAGE - 50) == data + bytes(20)
