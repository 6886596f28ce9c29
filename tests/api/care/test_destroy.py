"""Destroying a store: what is its own goes, what is not stays."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pytest

from rocketstore import Store, StoreClosedError
from rocketstore._native.os import syscalls
from rocketstore.engine.rebuild import WORK
from rocketstore.log.layout.destroy import OWN_NAMES
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.spark.sink.journal import sink_directory
from rocketstore.tools import rebuild
from tests.support.file_tools import Calls, Killed
from tests.support.small_store import dispatched, open_small, parts
from tests.support.waiting import wait_until


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    recorder = Calls(monkeypatch)
    yield recorder
    recorder.live_on()


def lived_in(root: Path) -> Store:
    """Some segments, queues, an index and a group."""
    store = open_small(root, durability="os")
    writer = store.writer("orders", queues=2)
    for n in range(40):
        writer.put(b"x" * 200, keys=f"k{n}")
    with dispatched(store).consumer("orders", group="g") as consumer:
        consumer.poll()
        consumer.commit()
    # However many a thread has left, and each is a call of the removal.
    wait_until(lambda: not parts(store).queue_files._asked)
    parts(store).queues._first_files.drop()
    return store


def is_whole_or_new(root: Path) -> bool:
    """Whether the next open finds all messages; False: none, and a store that works."""
    with open_small(root) as store:
        left = store.end_offset > 0
        assert store.topics() == (["orders"] if left else [])
        if left:
            assert sum(store.max_queue_offset("orders", n) for n in (0, 1)) == 40
        assert store.writer("after").put(b"works", durability="disk").queue_offset == 0
    return left


def test_progress_of_delays_goes_with_the_log_that_it_speaks_of(root: Path) -> None:
    with open_small(root) as store:
        store.writer("orders").put(b"later", delay_level=3)
    with open_small(root) as store:  # whose delivery finds the file
        assert StoreLayout(root).delay_offsets.exists()
        store.destroy()
    assert not root.exists()


def test_everything_of_the_store_goes(root: Path) -> None:
    """S003-11: close keeps the files, destroy deletes them."""
    with open_small(root) as store:
        for n in range(100):
            store.writer("orders").put(b"x" * 200, keys=f"k{n}")
        with dispatched(store).consumer("orders", group="g") as consumer:
            consumer.poll()
            consumer.commit()
    assert (root / "commitlog" / ("0" * 20)).exists()
    offsets = root / "config" / "consumerOffset.json"
    shutil.copy(
        offsets, f"{offsets}.bak"
    )  # as RocketMQ does, and reads where the other is not there
    store = open_small(root)
    store.destroy()
    assert store.closed
    assert not root.exists()
    with pytest.raises(StoreClosedError):
        store.destroy()


def test_alien_files_stay(root: Path) -> None:
    store = open_small(root)
    store.writer("orders").put(b"x")
    (root / "commitlog" / "notes.txt").write_text("mine")
    (root / "own").mkdir()
    store.destroy()
    found = sorted(p.relative_to(root).as_posix() for p in root.rglob("*"))
    assert found == ["commitlog", "commitlog/notes.txt", "own"]


@pytest.mark.parametrize("theirs", [False, True])
@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config", "rocketstore"])
def test_no_file_of_others_goes_where_a_link_of_the_owner_leads(
    tmp_path: Path, name: str, theirs: bool
) -> None:
    """A link that leads to nothing of others goes, and what it leads to stays."""
    root, disk = tmp_path / "store", tmp_path / "disk"
    lived_in(root).close()
    (root / name).rename(disk)
    (root / name).symlink_to(disk)
    if theirs:
        (disk / "theirs").mkdir()
        (disk / "theirs" / "notes.txt").write_text("precious")
    open_small(root).destroy()
    left = sorted(path.name for path in disk.rglob("*"))
    assert left == (["notes.txt", "theirs"] if theirs else [])
    assert (sorted(os.listdir(root)) if root.exists() else []) == ([name] if theirs else [])


def test_a_link_to_the_store_leads_to_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    lived_in(tmp_path / "store").close()
    open_small(tmp_path / "link").destroy()
    assert os.listdir(tmp_path / "store") == []
    assert not is_whole_or_new(tmp_path / "link")


def test_all_names_in_the_own_directory_are_known(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path / "store")
    with lived_in(layout.root):
        made = set(os.listdir(layout.own))
    places = [
        getattr(layout, name)
        for name, is_a in vars(StoreLayout).items()
        if isinstance(is_a, cached_property)
    ]
    named = {p.name for p in places if isinstance(p, Path) and p.parent == layout.own}
    named |= {WORK, sink_directory(layout.root).name}
    assert made <= named == {*OWN_NAMES, "removal"}


def test_the_place_can_be_used_again(root: Path) -> None:
    store = open_small(root)
    store.writer("orders").put(b"old")
    store.destroy()
    with open_small(root) as store:
        assert (store.end_offset, store.topics()) == (0, [])
        assert store.writer("orders").put(b"new").queue_offset == 0


def test_messages_in_hand_outlive_the_store(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    message = store.get(store.writer("orders").put(b"held").physical_offset)
    view = message.body_view
    store.destroy()
    assert bytes(view) == b"held"


@pytest.mark.parametrize("name", ["rename", "unlink", "rmdir", "sync_directory"])
def test_a_removal_that_failed_is_ended_by_the_next_open(
    name: str, calls: Calls, tmp_path: Path
) -> None:
    """K-86: whichever call fails, the store is as it was or it is gone, and never refused."""
    failed = 0
    for nth in itertools.count():
        root = tmp_path / str(nth)
        store = lived_in(root)
        calls.fail(name, *[None] * nth, errno.EROFS)
        try:
            store.destroy()
        except OSError as error:
            assert error.errno == errno.EROFS  # noqa: PT017
            failed += 1
            reached = True
        else:
            reached = not calls.errors[name]  # by something that only logs it
            assert not root.exists()
        finally:
            calls.errors.clear()
        if not reached:
            break
        assert is_whole_or_new(root) == (name == "rename")
    assert failed > (3 if name in ("unlink", "rmdir") else 0)


def test_a_killed_removal_is_ended_by_the_next_open(calls: Calls, tmp_path: Path) -> None:
    """What a removal leaves is not taken for a log that misses segments."""
    there = []
    for nth in itertools.count():
        root = tmp_path / str(nth)
        store = lived_in(root)
        calls.kill_before(nth, "rocketstore-closing")
        try:
            store.destroy()
        except Killed:
            pass
        else:
            break
        finally:
            calls.bury()
        if (root / "rocketstore" / "removal").exists():
            with pytest.raises(FileNotFoundError, match=r"destroy\(\) of this store has begun"):
                open_small(root, "r")
        there.append(is_whole_or_new(root))
    assert there == sorted(there, reverse=True), "a store that was begun to remove came back"
    assert there.count(True) >= 1
    assert there.count(False) > 20


def test_the_mark_goes_when_all_the_rest_is_gone_for_good(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlinks come to the disk in any order, so a sync stands between them and the mark's."""
    monkeypatch.setattr(syscalls, "syncfs", calls._wrap("syncfs", syscalls.syncfs))
    root = tmp_path / "store"
    store = lived_in(root)
    calls.seen.clear()
    store.destroy()
    gone = [(n, Path(str(args[0])).name) for n, args in calls.seen]
    sync = [name for name, _ in gone].index("syncfs")
    begun = gone.index(("rename", "checkpoint"))
    assert gone[begun + 1] == ("sync_directory", "rocketstore")
    first = next(
        at for at, (name, _) in enumerate(gone) if name in ("unlink", "rmdir") and at > begun
    )
    assert begun < first < sync
    after = [name for call, name in gone[sync:] if call in ("unlink", "rmdir")]
    assert after == ["removal", "rocketstore", "lock", "store"]


def test_a_full_disk_does_not_keep_a_store(calls: Calls, root: Path) -> None:
    store = lived_in(root)
    calls.fail("pwrite", *[errno.ENOSPC] * 9)
    store.destroy()
    assert not root.exists()


LONG = 200 * "a"


def dig(top: Path, name: str, depth: int) -> None:
    """Directories with a file each, one in another, down to where no path reaches."""
    top.mkdir(exist_ok=True)
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(fd)
        fd = below
    os.close(fd)


@pytest.mark.parametrize(("name", "depth"), [("a", 1100), (LONG, 30)])
def test_directories_in_one_another_are_removed_however_deep(
    name: str, depth: int, root: Path
) -> None:
    """A call for each ended at 1,000 of them, and a path at 4,095 bytes; the store was gone by then."""
    open_small(root).close()
    (root / "rocketstore" / "quarantine").mkdir(exist_ok=True)
    dig(root / "rocketstore" / "quarantine", name, depth)
    dig(root / "rocketstore" / "deep-0", name, 3)  # a name that the removal would take, too
    open_small(root).destroy()
    assert not root.exists()


def test_a_removal_of_deep_directories_that_is_stopped_is_completed(
    calls: Calls, root: Path
) -> None:
    open_small(root).close()
    dig(root / "rocketstore" / "quarantine", LONG, 30)
    store = open_small(root)
    calls.fail("rename", None, None, errno.EIO)
    with pytest.raises(OSError, match=r"\[Errno 5\]"):
        store.destroy()
    open_small(root).close()
    assert list((root / "rocketstore" / "quarantine").iterdir()) == []
    assert list((root / "rocketstore").glob("deep-*")) == []


def test_a_rebuild_removes_deep_directories_that_one_before_left(root: Path) -> None:
    with open_small(root) as store:
        store.writer("orders").put(b"x")
    dig(root / "rocketstore" / "rebuild", LONG, 30)
    rebuild(root)
    assert not (root / "rocketstore" / "rebuild").exists()
