"""What fails while a store is closed keeps neither its lock nor its descriptors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rocketstore import StoreFailedError
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from rocketstore.log.mapped_files import new_file, second_names
from tests.support.small_store import Calls, everything, open_small


def descriptors(root: Path) -> list[str]:
    """Files of the store that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(str(root)):
            found.append(target)
    return found


def test_names_that_a_failed_disk_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-36: neither the second name of a segment nor an unused segment that cannot be removed keeps a
    store locked; the next open deals with them."""
    for module in (second_names, new_file):
        calls = Calls(module.syscalls)
        calls.errors["unlink"] = OSError(errno.EIO, "the disk failed")
        monkeypatch.setattr(module, "syscalls", calls)
    store = open_small(tmp_path)
    store.writer("orders").put(b"one")
    store.close()
    assert descriptors(tmp_path) == []
    monkeypatch.undo()
    with open_small(tmp_path) as store:
        assert [m.body for m in everything(store)] == [b"one"]
        store.writer("orders").put(b"two")


def test_a_mark_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-03 D-36: the last checkpoint fails: close says so, and everything is released all the same."""

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk failed")

    store = open_small(tmp_path)
    store.writer("orders").put(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "store", fail)
        with pytest.raises((OSError, StoreFailedError)):
            store.close()
    store.close()
    assert descriptors(tmp_path) == []
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode != "clean"
        assert [m.body for m in everything(store)] == [b"one"]
