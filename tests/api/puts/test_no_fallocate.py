"""A life on a file system that cannot allocate: NFS before 4.2, ext3, some of FUSE (K-04)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import tools
from rocketstore._native.os import syscalls
from rocketstore.log.layout import disk_blocks
from rocketstore.log.layout.disk_blocks import allocate_blocks
from tests.filesystems.disks import Disk, disk
from tests.support import native_probe
from tests.support.small_store import SEGMENT, SMALL, open_small

KEYS = [f"k{number}" for number in range(150)]  # three index files
SHAPE = {name: SMALL[name] for name in ("index_slots", "index_entries")}


@pytest.fixture(params=[errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def refused(request: pytest.FixtureRequest) -> Iterator[Any]:
    probe = native_probe.load()
    probe.fail("fallocate", request.param, times=-1)
    yield probe
    probe.restore()


def live(root: Path) -> None:
    """Puts, a clean close, a crash with its repair, and a rebuild; every key is found after each."""
    with open_small(root, durability="os") as store:
        writer = store.writer("T")
        for key in KEYS:
            writer.put(b"x" * 40, keys=key)
        assert [key for key in KEYS if len(store.query("T", key)) != 1] == []
        assert store.query("T", "none") == []
    with open_small(root, durability="os") as store:
        assert store.recovery.mode == "clean"
        store.writer("T").put(b"y", keys="after")
    (root / "abort").touch()
    with open_small(root, durability="os") as store:
        assert store.recovery.mode != "clean"
        assert [key for key in [*KEYS, "after"] if len(store.query("T", key)) != 1] == []
    tools.rebuild(root, **SHAPE)
    with open_small(root, "r") as store:
        assert [key for key in [*KEYS, "after"] if len(store.query("T", key)) != 1] == []


def test_every_key_is_found(tmp_path: Path, refused: Any) -> None:
    live(tmp_path / "s")


def test_missing_segments_are_made(refused: Any, root: Path) -> None:
    live(root)
    os.truncate(root / "commitlog" / f"{SEGMENT:020d}", SEGMENT // 2)
    tools.repair(root, fill_missing=True, **SHAPE)
    file = (root / "commitlog" / f"{SEGMENT:020d}").stat()
    assert file.st_size == SEGMENT <= file.st_blocks * 512


@pytest.mark.root
def test_ext3(tmp_path: Path) -> None:
    with disk(tmp_path, "ext3") as mounted:
        assert not _allocates(mounted)
        live(mounted.path / "s")


def _allocates(mounted: Disk) -> bool:
    with (mounted.path / "f").open("wb") as file:
        try:
            syscalls.fallocate(file.fileno(), 0, 1)
        except OSError:
            return False
        return True


def test_holes_get_blocks_and_bytes_stay(
    tmp_path: Path, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_blocks, "STEP_BYTES", 3 * 4096)
    size = 10 * 4096 + 100
    path = tmp_path / "f"
    wanted = bytearray(size)
    fresh = size - 50
    with path.open("w+b") as file:
        file.truncate(fresh)  # the rest is made
        for at, data in ((4095, b"ab"), (5 * 4096 + 7, b"c"), (size - 60, b"d")):
            os.pwrite(file.fileno(), data, at)
            wanted[at : at + len(data)] = data
        allocate_blocks(file.fileno(), 100, size)
        os.fsync(file.fileno())
        assert os.pread(file.fileno(), size, 0) == bytes(wanted)
        assert os.fstat(file.fileno()).st_blocks * 512 >= size


def test_other_errors_are_raised(tmp_path: Path, refused: Any) -> None:
    refused.fail("fallocate", errno.ENOSPC)
    with (tmp_path / "f").open("wb") as file, pytest.raises(OSError, match="No space") as caught:
        allocate_blocks(file.fileno(), 0, 1)
    assert caught.value.errno == errno.ENOSPC
