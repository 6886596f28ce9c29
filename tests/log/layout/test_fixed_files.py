"""State files of a fixed length: whole and named on disk before the first record."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

import pytest

from rocketstore import DiskFullError
from rocketstore._native.os import syscalls
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import open_fixed_file


def open_and_close(layout: StoreLayout, size: int = 1024) -> None:
    os.close(open_fixed_file(os.fspath(layout.group_offsets), size, "commits"))


def test_a_new_file_is_synced_before_its_name(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-09"""
    calls: list[str] = []
    for name in ("pwrite", "fsync", "sync_directory"):
        monkeypatch.setattr(syscalls, name, lambda *_, name=name: calls.append(name))
    layout.own.chmod(0o750)
    open_and_close(layout)
    assert calls == ["pwrite", "fsync", "sync_directory"]
    assert stat.S_IMODE(layout.group_offsets.stat().st_mode) == 0o640


@pytest.mark.parametrize("held", [b"", b"x" * 100, b"x" * 1024, b"x" * 2000])
def test_what_a_file_holds_stays(layout: StoreLayout, held: bytes) -> None:
    layout.group_offsets.write_bytes(held)
    open_and_close(layout)
    assert layout.group_offsets.read_bytes() == held.ljust(1024, b"\0")


def test_a_kill_in_front_of_the_sync_of_the_name_is_made_good(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process finds a whole file whose name a power cut would take."""
    layout.group_offsets.write_bytes(bytes(1024))
    synced: list[str] = []
    monkeypatch.setattr(syscalls, "sync_directory", synced.append)
    open_and_close(layout)
    assert synced == [os.fspath(layout.own)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_and_tried_again(layout: StoreLayout, probe: Any, number: int) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    probe.fail("pwrite", number)
    with pytest.raises(DiskFullError, match="no room for commits"):
        open_and_close(layout)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    open_and_close(layout)
    assert layout.group_offsets.stat().st_size == 1024


def test_a_failed_sync_leaves_no_descriptor(layout: StoreLayout, probe: Any) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    probe.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        open_and_close(layout)
    assert len(os.listdir("/proc/self/fd")) == descriptors
