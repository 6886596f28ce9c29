"""A new file has its name only when it is whole and synced (D-06); a full disk leaves nothing."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.listing import make_directory
from rocketstore.log.mapped_files.new_file import NewFile
from tests.support.file_tools import Calls, Killed, blocks, largest_file, names

SIZE = 64 * 1024
NAME = "00000000000000065536"


class Places:
    """A directory for files and one for what is not finished."""

    def __init__(self, root: Path) -> None:
        self.files = root / "commitlog"
        self.tmp = root / "tmp"
        for directory in (self.files, self.tmp):
            directory.mkdir(mode=0o700)

    def make(
        self,
        *,
        sparse: bool = False,
        reserve: Callable[[int, int], int] | None = None,
    ) -> MappedFile:
        return NewFile.make(
            self.files, self.tmp, SIZE, SIZE, sparse=sparse, reserve=reserve
        ).publish()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    recorder = Calls(monkeypatch)
    yield recorder
    recorder.live_on()


def no_unnamed_files(calls: Calls) -> None:
    calls.fail("open_unnamed", *[errno.EOPNOTSUPP] * 99)


def no_renames_either(calls: Calls) -> None:
    no_unnamed_files(calls)
    calls.fail("rename_noreplace", *[errno.EINVAL] * 99)


def no_allocation(calls: Calls) -> None:
    calls.fail("fallocate", *[errno.EOPNOTSUPP] * 99)


WAYS = {
    "unnamed": lambda calls: None,
    "renamed": no_unnamed_files,
    "linked": no_renames_either,
    "written": no_allocation,
}
WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
Way = Callable[[Calls], None]


# ---- order ----


@WAY
def test_the_file_is_synced_before_its_name_and_the_name_after(
    places: Places, calls: Calls, way: Way
) -> None:
    """S001-02: alloc → sync → name → sync of the directory (K-03)."""
    way(calls)
    file = places.make()
    order = calls.names
    naming = max(
        at
        for at, (name, arguments) in enumerate(calls.seen)
        if name in ("link_unnamed", "rename_noreplace", "link") and arguments[-1] == file.path
    )
    allocated = max(at for at, name in enumerate(order) if name in ("fallocate", "pwrite"))
    assert allocated < order.index("fsync") < naming
    assert ("sync_directory", (str(places.files),)) in calls.seen[naming + 1 :]
    assert names(places.files) == [NAME]
    assert names(places.tmp) == []
    file.close()


@WAY
def test_killed_between_any_two_steps_no_unfinished_name_is_seen(tmp_path: Path, way: Way) -> None:
    """D-06: whatever the moment, Java finds a whole file or none."""
    seen = set()
    for moment in range(99):
        (tmp_path / str(moment)).mkdir()
        places = Places(tmp_path / str(moment))
        with pytest.MonkeyPatch.context() as patch:
            calls = Calls(patch)
            way(calls)
            calls.kill_before(moment)
            try:
                file = places.make()
            except Killed:
                calls.bury()
            else:
                calls.live_on()
                file.close()
                break
        found = names(places.files)
        seen.add(tuple(found))
        assert found in ([], [NAME]), moment
        if found:
            path = places.files / NAME
            assert path.read_bytes() == bytes(SIZE)
            assert path.stat().st_blocks * 512 >= SIZE
    else:
        pytest.fail("never done")
    assert seen == {(), (NAME,)}  # both sides of the naming were tried


def test_the_last_resort_is_the_final_name(places: Places, calls: Calls) -> None:
    """D-06: no unnamed files and no directory of ours on the same disk."""
    no_unnamed_files(calls)
    file = NewFile.make(places.files, None, SIZE, SIZE, sparse=False).publish()
    assert names(places.files) == [NAME]
    assert "rename_noreplace" not in calls.names
    file.close()


def test_without_a_directory_of_ours_an_unnamed_file_is_made_in_place(places: Places) -> None:
    file = NewFile.make(places.files, None, SIZE, SIZE, sparse=False).publish()
    assert (names(places.files), names(places.tmp)) == ([NAME], [])
    file.close()


# ---- what it is ----


def test_a_log_file_has_its_blocks_and_a_queue_file_has_none(places: Places) -> None:
    """S001-02 S004-25: full size from the moment it exists, zeros, mapped for writing."""
    dense = places.make()
    sparse = NewFile.make(places.files, places.tmp, 2 * SIZE, SIZE, sparse=True).publish()
    assert blocks(dense) >= SIZE
    assert blocks(sparse) < SIZE
    for file in (dense, sparse):
        assert os.path.getsize(file.path) == SIZE == file.size
        assert file.read(0, SIZE) == bytes(SIZE)
        assert file.writable
        file.close()


def test_what_cannot_be_allocated_is_written(places: Places, calls: Calls) -> None:
    """K-04: a file system without fallocate never gets a sparse log."""
    no_allocation(calls)
    file = places.make()
    assert blocks(file) >= SIZE
    file.close()


def test_zeroed_blocks_are_written_before_the_name(places: Places, calls: Calls) -> None:
    """D-11 a: so that a sync of what is put there later only overwrites."""

    def reserve(fd: int, size: int) -> int:
        syscalls.pwrite(fd, bytes(size), 0)
        return size

    file = places.make(sparse=True, reserve=reserve)
    assert (
        calls.names.index("pwrite") < calls.names.index("fsync") < calls.names.index("link_unnamed")
    )
    file.close()


@WAY
def test_a_name_that_is_taken_is_never_replaced(places: Places, calls: Calls, way: Way) -> None:
    way(calls)
    path = places.files / NAME
    path.write_bytes(b"not yours")
    with pytest.raises(FileExistsError):
        places.make()
    assert path.read_bytes() == b"not yours"
    assert (names(places.files), names(places.tmp)) == ([NAME], [])


def test_mode_and_owner_come_from_the_file_before(places: Places) -> None:
    """D-09: whatever the umask; the directory's count while there is no file."""
    os.chmod(places.files, 0o750)
    umask = os.umask(0o077)
    try:
        first = places.make()
        assert stat.S_IMODE(os.fstat(first.fd).st_mode) == 0o640
        os.chmod(first.path, 0o664)
        second = NewFile.make(places.files, places.tmp, 2 * SIZE, 10, sparse=True).publish()
        assert stat.S_IMODE(os.fstat(second.fd).st_mode) == 0o664
    finally:
        os.umask(umask)
    first.close()
    second.close()


@pytest.mark.root
def test_a_repair_as_root_does_not_lock_the_broker_out(places: Places) -> None:
    """D-09."""
    os.chown(places.files, 1234, 5678)
    file = places.make()
    found = os.fstat(file.fd)
    assert (found.st_uid, found.st_gid) == (1234, 5678)
    file.close()


def test_a_directory_is_made_and_synced_with_those_above_it(tmp_path: Path, calls: Calls) -> None:
    """S004-24 D-18."""
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    order = [(name, a[0]) for name, a in calls.seen if name in ("mkdir", "sync_directory")]
    assert order == [
        ("mkdir", str(tmp_path / "a")),
        ("sync_directory", str(tmp_path)),
        ("mkdir", str(tmp_path / "a" / "b")),
        ("sync_directory", str(tmp_path / "a")),
    ]


# ---- no room ----


@pytest.mark.parametrize("way", [WAYS["unnamed"], WAYS["renamed"]], ids=["unnamed", "renamed"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["fallocate", "fsync", "sync_directory"])
def test_a_full_disk_leaves_nothing_and_the_next_call_works(
    places: Places, calls: Calls, way: Way, call: str, number: int
) -> None:
    """S000-32 S000-60: a clean refusal, which names the file and what it needs."""
    way(calls)
    calls.fail(call, number)
    with pytest.raises(DiskFullError) as caught:
        places.make()
    assert caught.value.errno == number
    assert caught.value.filename == str(places.files / NAME)
    assert str(SIZE) in str(caught.value)
    assert (names(places.files), names(places.tmp)) == ([], [])
    file = places.make()
    assert names(places.files) == [NAME]
    file.close()


@pytest.mark.parametrize("call", ["chmod", "fsync", "link_unnamed", "sync_directory"])
def test_any_other_error_leaves_nothing_either(places: Places, calls: Calls, call: str) -> None:
    calls.fail(call, errno.EIO)
    if call == "chmod":
        os.chmod(places.files, 0o770)
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Input/output error") as caught:
        places.make()
    assert caught.value.errno == errno.EIO
    assert not isinstance(caught.value, DiskFullError)
    assert (names(places.files), names(places.tmp)) == ([], [])
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_file_above_the_limit_is_refused_by_the_kernel_itself(places: Places) -> None:
    with largest_file(SIZE // 2), pytest.raises(DiskFullError) as caught:
        places.make()
    assert caught.value.errno == errno.EFBIG
    assert "RLIMIT_FSIZE (ulimit -f) leaves no room" in str(caught.value)
    assert names(places.files) == []
    places.make().close()


@pytest.mark.root
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """K-04: fallocate says so before the file has a name, and works once there is room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=False
    )
    if mounted.returncode:
        pytest.skip("no mounts here")
    try:
        places = Places(disk)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(240 * 1024))
        with pytest.raises(DiskFullError) as caught:
            places.make()
        assert caught.value.errno == errno.ENOSPC
        assert (names(places.files), names(places.tmp)) == ([], [])
        ballast.unlink()
        file = places.make()
        assert syscalls.allocated_bytes(file.fd) >= SIZE
        file.close()
        del file
    finally:
        subprocess.run(["umount", str(disk)], check=True)
