"""`_native.os.syscalls`: errors say what and where, nothing is half done, forks are noticed."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls

pytestmark = pytest.mark.quick

Child = Callable[[Callable[[], object]], None]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = syscalls.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


# ---- names ----


def test_open_says_errno_and_path(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(FileNotFoundError) as caught:
        syscalls.open(missing, os.O_RDONLY)
    assert caught.value.errno == errno.ENOENT
    assert str(caught.value.filename) == str(missing)


def test_open_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match="link") as caught:
        syscalls.open(tmp_path / "link", os.O_RDONLY)
    assert caught.value.errno == errno.ELOOP


def test_open_does_not_wait_for_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    os.close(syscalls.open(tmp_path / "fifo", os.O_RDONLY))


def test_open_refuses_a_path_with_nul(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="NUL"):
        syscalls.open(f"{tmp_path}/file\0tail", os.O_RDWR | os.O_CREAT)
    assert os.listdir(tmp_path) == []


def test_descriptors_do_not_survive_exec(file: int) -> None:
    assert not os.get_inheritable(file)


def test_a_new_file_is_its_owners_alone(file: int) -> None:
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o600


def test_calls_go_on_after_eintr(tmp_path: Path, probe: Any) -> None:
    probe.fail("open", errno.EINTR, times=3)
    os.close(syscalls.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
    assert probe.calls_made() == 4


def test_an_interrupted_call_serves_signals(tmp_path: Path, probe: Any) -> None:
    class Served(Exception):
        pass

    def serve(number: int, frame: object) -> None:
        raise Served

    before = signal.signal(signal.SIGUSR1, serve)
    try:
        probe.fail("open", errno.EINTR, with_signal=signal.SIGUSR1)
        with pytest.raises(Served):
            syscalls.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    finally:
        signal.signal(signal.SIGUSR1, before)


def unnamed(directory: Path) -> int:
    try:
        return syscalls.open_unnamed(directory)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            pytest.skip("this file system has no O_TMPFILE")
        raise


def test_an_unnamed_file_shows_no_name_until_it_is_linked(tmp_path: Path) -> None:
    """D-06"""
    fd = unnamed(tmp_path)
    syscalls.pwrite(fd, b"whole", 0)
    assert os.listdir(tmp_path) == []
    syscalls.link_unnamed(fd, tmp_path / "name")
    os.close(fd)
    assert (tmp_path / "name").read_bytes() == b"whole"


def test_linking_never_replaces(tmp_path: Path) -> None:
    """D-06"""
    (tmp_path / "name").write_bytes(b"older")
    fd = unnamed(tmp_path)
    with pytest.raises(FileExistsError) as caught:
        syscalls.link_unnamed(fd, tmp_path / "name")
    os.close(fd)
    assert str(caught.value.filename) == str(tmp_path / "name")
    assert (tmp_path / "name").read_bytes() == b"older"


def test_link_gives_a_second_name(tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    syscalls.link(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one").samefile(tmp_path / "two")
    with pytest.raises(FileExistsError):
        syscalls.link(tmp_path / "one", tmp_path / "two")


def test_rename_replaces(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    syscalls.rename(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["old"]


def test_rename_noreplace_does_not(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        syscalls.rename_noreplace(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_bytes() == b"old"
    syscalls.rename_noreplace(tmp_path / "new", tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == b"new"


def test_unlink_and_directories(tmp_path: Path) -> None:
    syscalls.mkdir(tmp_path / "directory")
    assert stat.S_IMODE((tmp_path / "directory").stat().st_mode) == 0o700
    (tmp_path / "directory" / "file").touch()
    with pytest.raises(OSError, match="directory") as caught:
        syscalls.rmdir(tmp_path / "directory")
    assert caught.value.errno == errno.ENOTEMPTY
    syscalls.unlink(tmp_path / "directory" / "file")
    syscalls.rmdir(tmp_path / "directory")
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        syscalls.unlink(tmp_path / "file")


def test_sync_directory_takes_directories_only(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    syscalls.sync_directory(tmp_path / "link")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        syscalls.sync_directory(tmp_path / "file")


def test_sync_directory_tells_an_error_and_leaks_nothing(tmp_path: Path, probe: Any) -> None:
    before = len(os.listdir("/proc/self/fd"))
    probe.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output") as caught:
        syscalls.sync_directory(tmp_path)
    assert caught.value.filename == str(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_chmod_does_not_heed_the_umask(file: int) -> None:
    before = os.umask(0o077)
    try:
        syscalls.chmod(file, 0o664)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.fstat(file).st_mode) == 0o664


@pytest.mark.root
def test_chown_gives_a_file_away(file: int) -> None:
    syscalls.chown(file, 1234, 5678)
    assert (os.fstat(file).st_uid, os.fstat(file).st_gid) == (1234, 5678)


# ---- bytes ----


def test_pread_is_short_only_at_the_end(file: int, probe: Any) -> None:
    syscalls.pwrite(file, b"0123456789", 0)
    probe.fail("pread", 0, times=0, at_most=3)
    assert syscalls.pread(file, 8, 0) == b"01234567"
    assert syscalls.pread(file, 8, 6) == b"6789"
    assert syscalls.pread(file, 8, 10) == b""
    assert syscalls.pread(file, 0, 0) == b""


def test_pread_refuses_a_negative_count(file: int) -> None:
    with pytest.raises(ValueError, match="-1"):
        syscalls.pread(file, -1, 0)


def test_pwrite_goes_on_after_short_writes(file: int, probe: Any) -> None:
    probe.fail("pwrite", 0, times=0, at_most=3)
    syscalls.pwrite(file, memoryview(b"0123456789"), 5)
    assert probe.calls_made() == 4
    assert syscalls.pread(file, 100, 0) == bytes(5) + b"0123456789"


def test_pwrite_to_a_full_disk() -> None:
    fd = syscalls.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space") as caught:
            syscalls.pwrite(fd, b"x", 0)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == "/dev/full"
    finally:
        os.close(fd)


LIMIT = 4096


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """No file of this process grows beyond LIMIT bytes, the one that pytest prints to included."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_write_that_ends_in_the_middle_is_an_error(file: int) -> None:
    """The kernel writes what fits and says so; only the next call says why."""
    with small_files(), pytest.raises(OSError, match="File too large") as caught:
        syscalls.pwrite(file, bytes(100), LIMIT - 10)
    assert caught.value.errno == errno.EFBIG
    assert os.fstat(file).st_size == LIMIT


def test_growing_beyond_the_limit_is_an_error(file: int) -> None:
    with small_files(), pytest.raises(OSError, match="File too large"):
        syscalls.ftruncate(file, LIMIT + 1)
    with small_files(), pytest.raises(OSError, match="File too large"):
        syscalls.fallocate(file, 0, LIMIT + 1)
    assert os.fstat(file).st_size == 0


def test_a_failed_sync_is_told(file: int, probe: Any, tmp_path: Path) -> None:
    for name in ("fdatasync", "fsync"):
        probe.fail(name, errno.EIO)
        with pytest.raises(OSError, match="Input/output") as caught:
            getattr(syscalls, name)(file)
        assert caught.value.filename == str(tmp_path / "file")
    syscalls.syncfs(file)


def test_writing_takes_buffers_only(file: int) -> None:
    with pytest.raises(TypeError):
        syscalls.pwrite(file, "text", 0)  # type: ignore[arg-type]


def test_fallocate_takes_room_and_says_when_there_is_none(file: int, probe: Any) -> None:
    syscalls.fallocate(file, 0, 65536)
    assert os.fstat(file).st_size == 65536
    assert syscalls.allocated_bytes(file) >= 65536
    probe.fail("fallocate", errno.ENOSPC)
    with pytest.raises(OSError, match="No space") as caught:
        syscalls.fallocate(file, 65536, 65536)
    assert caught.value.errno == errno.ENOSPC


def test_seek_data_finds_what_is_no_hole(file: int) -> None:
    syscalls.ftruncate(file, 1 << 20)
    assert syscalls.seek_data(file, 0) is None
    syscalls.pwrite(file, b"x", 512 << 10)
    found = syscalls.seek_data(file, 0)
    assert found is not None
    assert 0 <= found <= 512 << 10
    assert syscalls.seek_data(file, 1 << 20) is None


def test_seek_data_where_holes_are_not_known(file: int, probe: Any) -> None:
    probe.fail("lseek", errno.EINVAL)
    assert syscalls.seek_data(file, 77) == 77


def test_close_tells_a_bad_descriptor() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        syscalls.close(1 << 20)


def test_file_system_type() -> None:
    assert syscalls.file_system_type("/proc") == 0x9FA0


def test_clocks() -> None:
    before = time.time()
    now = syscalls.realtime_ms()
    assert before * 1000 - 1 <= now <= time.time() * 1000
    before_ns = time.monotonic_ns()
    assert before_ns <= syscalls.monotonic_ns() <= time.monotonic_ns()
