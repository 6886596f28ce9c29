"""Verify: records with keys that no query finds."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore.log.index.store import IndexStore
from rocketstore.tools import repair, verify
from rocketstore.tools.report import VerifyReport
from tests.support.made_store import MadeStore, rocketmq_store
from tests.support.small_store import SMALL, open_small


def check(root: Path) -> VerifyReport:
    return verify(root, index_slots=SMALL["index_slots"], index_entries=SMALL["index_entries"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """250 messages with one key each, in several index files."""
    path = tmp_path / "store"
    with open_small(path) as store:
        for number in range(250):
            store.writer("orders").put(b"%d" % number, keys=f"k{number}")
            store.put_message("orders", b"none")
    assert len(list((path / "index").iterdir())) > 3
    assert check(path).ok
    return path


def empty(file: Path) -> None:
    os.truncate(file, 0)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def noise(file: Path) -> None:
    file.write_bytes(os.urandom(file.stat().st_size))


@pytest.mark.parametrize("damage", [Path.unlink, empty, cut, zeros, noise])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_damaged_index_file_hides_keys(
    root: Path, damage: Callable[[Path], None], which: int
) -> None:
    damage(sorted((root / "index").iterdir())[which])
    report = check(root)
    [fault] = [one for one in report.faults if one.code == "keys"]
    assert fault.kind == "derived"
    assert fault.reason.startswith("the index has no entry of ")
    assert report.hidden_messages == report.lost_messages == ()


@pytest.mark.parametrize("damage", [Path.unlink, empty, cut, zeros, noise])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_an_open_makes_a_damaged_index_again(
    root: Path, damage: Callable[[Path], None], which: int
) -> None:
    """A reader does it in memory, a writer on the disk; no query is short without a word."""
    damage(sorted((root / "index").iterdir())[which])
    for mode in ("r", "r+", "r"):
        with open_small(root, mode) as store:
            found = [len(store.query("orders", f"k{number}")) for number in range(250)]
            assert found == [1] * 250, mode
    assert check(root).ok


@pytest.mark.parametrize("gone", [slice(0, 2), slice(1, 2), slice(2, 3)])
def test_an_open_makes_an_index_again_that_lacks_files(tmp_path: Path, gone: slice) -> None:
    """RocketMQ's dispatch after a crash may begin later than the log (K-88); whoever removes a file
    in between leaves no trace but its keys."""
    root = tmp_path / "store"
    with open_small(root) as store:
        for number in range(250):
            store.writer("orders").put(b"%d" % number, keys=f"k{number}")
    (root / "rocketstore" / "checkpoint").unlink()  # as RocketMQ leaves a store
    (root / "lock").write_bytes(b"lock")
    files = sorted((root / "index").iterdir())
    assert len(files) > 3
    for file in files[gone]:
        file.unlink()
    [fault] = check(root).faults
    assert fault.code == "keys"
    for mode in ("r", "r+", "r"):
        with open_small(root, mode) as store:
            found = [len(store.query("orders", f"k{number}")) for number in range(250)]
            assert found == [1] * 250, mode
    assert check(root).ok


def test_an_index_that_is_cut_at_a_zeroed_entry_is_made_again(tmp_path: Path) -> None:
    """The cut drops all from that entry on. Those of records in front of the place where indexing
    goes on were hidden for good then, in an index without another fault."""
    root, _ = rocketmq_store("clean-498", tmp_path)
    shape = {"index_slots": 64, "index_entries": 300}
    third = sorted((root / "index").iterdir())[2]
    data = bytearray(third.read_bytes())
    at = 40 + 4 * 64 + 20 * 70  # not one of the entries at an end, at which an open looks
    data[at : at + 20] = bytes(20)
    third.write_bytes(data)
    assert not verify(root, **shape).ok
    with rocketstore.open(root, "rw", **shape) as store:
        assert store.recovery.index_start == 0
    assert verify(root, **shape).ok


def test_a_store_that_keeps_no_index_is_told_so(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", index_enabled=False) as store:
        store.writer("orders").put(b"x", keys="k")
    report = check(tmp_path / "store")
    assert report.ok
    [notice] = report.notices
    assert "no index, and 1 record with keys" in notice.reason


def test_what_is_no_key(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store")
    made.put(properties={"KEYS": "  ", "XKEYS": "a", "A": "KEYS", "UNIQ_KEYS": "a"})
    made.put(sys_flag=12, properties={"KEYS": "a"})  # rolled back: RocketMQ makes no entry
    made.dispatch()
    assert check(made.root).notices == ()
    made.put(properties={"KEYS": " a"})
    made.dispatch()
    [notice] = check(made.root).notices
    assert "1 record with keys" in notice.reason


def test_a_repair_without_room_says_that_it_left_the_index_out(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: IndexStore) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = sorted((root / "commitlog").iterdir())[0]
    data = bytearray(log.read_bytes())
    data[88] ^= 0xFF  # a byte of the first body
    log.write_bytes(data)
    with monkeypatch.context() as patch:
        patch.setattr(IndexStore, "_roll", full)
        report = repair(root, **SMALL)
    assert report.ok
    [note] = report.notes
    assert note.startswith("the index is left out, and the next open makes it: ")
    assert "No space left" in note
    assert (root / "abort").exists()  # so the next open makes them
    with open_small(root, "r+") as store:
        assert len(store.query("orders", "k200")) == 1
    assert check(root).ok
