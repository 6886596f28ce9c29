"""A disk that fails or is full under a compaction: the source is as it was, and no store has the name."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import tools
from rocketstore.services.compaction import new_store
from tests.services.compacting import SHAPE, fill_at_random, messages
from tests.support.small_store import open_small, watched
from tests.unit.conftest import probe

__all__ = ["probe"]

WORK = ".t.compacting"


def files(path: Path) -> dict[str, bytes]:
    return {
        os.fspath(one.relative_to(path)): one.read_bytes()
        for one in sorted(path.rglob("*"))
        if one.is_file()
    }


def fails(store: Any, into: Path, number: int) -> None:
    with pytest.raises(OSError, match=os.strerror(number)) as failed:
        store.compact("users", into=into)
    assert failed.value.errno == number
    assert not into.exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize(
    ("call", "module"),
    [
        ("mkdir", new_store),
        ("open", new_store),
        ("ftruncate", new_store),
        ("pwrite", new_store),
        ("fsync", new_store),
        ("rename", new_store),
        ("sync_directory", new_store),
    ],
)
def test_a_call_that_fails_in_the_new_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, module: Any, number: int
) -> None:
    """The same call works once the disk does."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, 5)
    before = files(source)
    with open_small(source, "r") as store:
        with monkeypatch.context() as patched:
            calls = watched(patched, module)
            calls.errors[call] = OSError(number, os.strerror(number), os.fspath(into))
            if call == "sync_directory":  # the name may be there, or not: after a crash as well
                with pytest.raises(OSError, match=os.strerror(number)):
                    store.compact("users", into=into)
                assert not tools.verify(into, **SHAPE).faults
                into.rename(tmp_path / "kept")
            else:
                fails(store, into, number)
            assert call in calls.made
        assert files(source) == before
        assert set(os.listdir(tmp_path)) <= {"s", "kept"}
        report = store.compact("users", into=into)
    assert files(source) == before
    assert len(messages(into)) == report.kept > 0


@pytest.mark.parametrize("call", ["fallocate", "msync", "mmap"])
def test_a_call_that_fails_while_queues_and_index_are_made(
    tmp_path: Path, probe: Any, call: str
) -> None:
    """These are made by an open of the store that has no name yet."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, 6)
    before = files(source)
    number = errno.ENOMEM if call == "mmap" else errno.ENOSPC
    with open_small(source, "r") as store:
        opens = new_store.open_engine

        def failing(*arguments: Any) -> Any:
            probe.fail(call, number, times=-1)
            return opens(*arguments)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(new_store, "open_engine", failing)
            with pytest.raises((OSError, rocketstore.RocketStoreError)) as failed:
                store.compact("users", into=into)
        probe.restore()
        assert not isinstance(failed.value, OSError) or failed.value.errno == number
        assert not into.exists() and files(source) == before
        report = store.compact("users", into=into)
    assert len(messages(into)) == report.kept
    assert sorted(os.listdir(tmp_path)) == ["s", "t"]


def test_a_work_directory_that_cannot_be_removed_has_no_name_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails for good: what is left says that it is not finished, and the next call takes it."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, 7)
    with open_small(source, "r") as store:
        with monkeypatch.context() as patched:
            failed = OSError(errno.EIO, os.strerror(errno.EIO))
            calls = watched(patched, new_store)
            calls.errors["pwrite"] = failed
            patched.setattr(new_store.destroy, "remove_tree", _fail_when_full)
            fails(store, into, errno.EIO)
        assert sorted(os.listdir(tmp_path)) == [WORK, "s"]
        report = store.compact("users", into=into)
    assert len(messages(into)) == report.kept
    assert sorted(os.listdir(tmp_path)) == ["s", "t"]


def _fail_when_full(root: Path, **more: Any) -> None:
    if (root / "store").exists():
        raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(root))


def test_a_file_that_cannot_be_closed_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that fails leaves the file of the new log open, and its close fails as well."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, 5)

    def refused(fd: int) -> None:
        os.close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with open_small(source, "r") as store:
        before = len(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patched:
            patched.setattr(new_store.syscalls, "pwrite", lambda *_: refused(os.dup(0)))
            patched.setattr(new_store.NewLog, "abandon", lambda log: refused(log._fd))
            fails(store, into, errno.EIO)
        assert len(os.listdir("/proc/self/fd")) == before
        store.compact("users", into=into)
