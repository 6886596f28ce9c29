"""An index that somebody changed after a clean stop hides no key: it is made again from the log."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import tools
from rocketstore.log.index.store import IndexStore, hash_of
from rocketstore.log.layout.paths import StoreLayout
from tests.support.index_tools import offsets_of

SHAPE: dict[str, Any] = {
    "commit_log_file_size_bytes": 1 << 16,
    "index_slots": 101,
    "index_entries": 400,
}
ALL = range(300)


def overwrite(position: int, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(data)

    return change


def to_length(change: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, max(0, path.stat().st_size + change))


CHANGES: dict[str, Callable[[Path], None]] = {
    "cut": to_length(-1),
    "cut to half": to_length(-4000),
    "empty": to_length(-(1 << 30)),
    "grown": to_length(4),
    "no header": overwrite(0, bytes(40)),
    "random": lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
    "a count of 1": overwrite(36, (1).to_bytes(4, "big")),
    "a count of 200": overwrite(36, (200).to_bytes(4, "big")),
    "no slots": overwrite(40, bytes(404)),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with 300 keys, and beside it its index as it was with 150."""
    root = tmp_path_factory.mktemp("stopped")
    for count in (150, 300):
        with rocketstore.open(root / "store", durability="os", **SHAPE) as store:
            writer = store.writer("orders")
            for number in range(count - 150, count):
                writer.put(b"x", keys=f"k{number}")
        (path,) = (root / "store" / "index").iterdir()
        shutil.copy(path, root / f"index-{count}")
    return root


@pytest.fixture
def store(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped / "store", tmp_path / "store"))


def index_of(store: Path) -> Path:
    (path,) = (store / "index").iterdir()
    return path


def lost(root: Path, mode: Any = "r", **options: Any) -> list[int]:
    with rocketstore.open(root, mode, **SHAPE, **options) as opened:
        return [number for number in ALL if len(opened.query("orders", f"k{number}")) != 1]


@pytest.fixture
def path(store: Path) -> Path:
    """The index file."""
    return index_of(store)


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_change_of_an_index_hides_a_key(store: Path, change: str, mode: Any) -> None:
    CHANGES[change](index_of(store))
    assert not tools.verify(store).ok
    for _ in range(2):
        assert lost(store, mode) == []
    assert tools.verify(store).ok == (mode == "rw")


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_an_older_copy_of_an_index_hides_no_key(stopped: Path, store: Path, mode: Any) -> None:
    """Sound by itself; the last record of the log has a key that it lacks."""
    shutil.copy(stopped / "index-150", index_of(store))
    assert lost(store, mode) == []


def test_an_index_that_begins_late_hides_no_key(store: Path, tmp_path: Path) -> None:
    """Of another store whose first records have other keys."""
    begin = index_of(store).read_bytes()[40 + 4 * 101 :][20:40]
    path = index_of(store)
    with path.open("r+b") as file:
        file.seek(16)
        file.write(begin[4:12])  # the header begins at the second entry
        file.seek(40 + 4 * 101 + 20)
        file.write(begin)  # and so does the first one
    with rocketstore.open(store, "r", **SHAPE) as opened:
        assert len(opened.query("orders", "k0")) == 1


def test_slots_in_between_are_looked_at_where_a_caller_asks(store: Path, path: Path) -> None:
    """An open looks at the slots of 64 entries at either end; `check_queues` and `verify` at all."""
    ends = {hash_of("orders", f"k{number}") % 101 for number in (*ALL[:64], *ALL[-64:])}
    between = [slot for slot in range(101) if slot not in ends]
    assert between, "each slot has an entry at an end: take fewer keys"
    for slot in between:
        overwrite(40 + 4 * slot, bytes(4))(path)
    assert not tools.verify(store).ok
    assert lost(store, "rw") != []
    assert lost(store, "r", check_queues=True) == lost(store, "rw", check_queues=True) == []
    assert tools.verify(store).ok and lost(store) == []


def test_a_reader_takes_the_file_that_has_the_name_now(
    stopped: Path, store: Path, path: Path
) -> None:
    """After a rebuild by another process the old file serves nobody."""
    new = path.read_bytes()
    shutil.copy(stopped / "index-150", path)
    index = IndexStore(StoreLayout(store), "read", 101, 400)
    index.load()
    assert offsets_of(index, "orders", "k299") == []
    os.unlink(path)
    path.write_bytes(new)
    index.load()
    assert len(offsets_of(index, "orders", "k299")) == 1
    (kept,) = index.files
    index.load()
    assert index.files == (kept,)
    index.close()


def test_a_sound_index_stays(store: Path, path: Path) -> None:
    inode = path.stat().st_ino
    assert lost(store, "rw") == lost(store, "rw", check_queues=True) == []
    assert index_of(store).stat().st_ino == inode
