"""Links that a stranger has put in place of a name that rocketstore makes, locks, replaces or
removes in a directory that the stranger may write: nothing behind them changes."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketstore import ConfigError, RocketStoreError
from rocketstore._native.os import syscalls
from rocketstore.replication import FileLease
from tests.log.layout.test_swapped_directories import STRANGER, Swap, content
from tests.support.small_store import open_small

#: Every fixed name in a store; where it is a directory, with a slash.
NAMES = [
    "lock",
    "abort",
    "checkpoint",
    "commitlog/",
    "commitlog/00000000000000000000",
    "consumequeue/",
    "consumequeue/t/",
    "consumequeue/t/0/",
    "consumequeue/t/0/00000000000000000000",
    "index/",
    "config/",
    "config/consumerOffset.json",
    "config/consumerOffset.json.bak",
    "config/delayOffset.json",
    "rocketstore/",
    "rocketstore/blocked_queues",
    "rocketstore/checkpoint",
    "rocketstore/compacted.json",
    "rocketstore/cut.json",
    "rocketstore/group_offsets",
    "rocketstore/holds.json",
    "rocketstore/journal/",
    "rocketstore/live/",
    "rocketstore/positions",
    "rocketstore/quarantine/",
    "rocketstore/queue_ends",
    "rocketstore/rebuild/",
    "rocketstore/recovery.json",
    "rocketstore/removal",
    "rocketstore/replication.json",
    "rocketstore/retention.json",
    "rocketstore/shipped.json",
    "rocketstore/store.json",
    "rocketstore/timers/",
    "rocketstore/tmp/",
]


def give(path: Path, owner: int = STRANGER) -> None:
    for each in (path, *path.rglob("*")):
        os.lchown(each, owner, owner)


def put_link(place: Path, target: Path, owner: int = STRANGER) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    os.lchown(place, owner, owner)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strangers") / "store"
    with open_small(path, index_tags=True) as store:
        for n in range(3):
            store.put_message("t", b"x" * 200, properties={"KEYS": f"k{n}"})
    return path


def use(path: Path) -> None:
    """Puts, commits, trims and removes, as far as it is let."""
    refused = (OSError, RocketStoreError)
    with contextlib.suppress(*refused), open_small(path) as store:
        store.put_message("t", b"y" * 200, properties={"KEYS": "k"})
        with contextlib.suppress(*refused), store.consumer("t", group="g") as consumer:
            consumer.poll()
            consumer.commit()
        with contextlib.suppress(*refused):
            store.trim(before_offset=store.end_offset)
        with contextlib.suppress(*refused):
            store.configure(sync_flush_timeout_ms=4000)
    with contextlib.suppress(*refused):
        open_small(path).destroy()


@pytest.mark.root
@pytest.mark.parametrize("name", NAMES)
def test_no_link_of_the_owner_of_a_store_leads_root_out_of_it(
    tmp_path: Path, made: Path, name: str
) -> None:
    """D-09: of a store that belongs to somebody else, whose links are somebody else's, too."""
    victims = tmp_path / "victims"
    (victims / "directory" / "t" / "0").mkdir(parents=True)
    for file in ("file", "directory/store.json", "directory/t/0/1", f"directory/{0:020d}"):
        (victims / file).write_text("precious")
    before = content(victims)
    for target in ("directory", "missing") if name.endswith("/") else ("file", "missing"):
        store = tmp_path / target
        shutil.copytree(made, store)
        give(store)
        put_link(store / name, victims / target)
        use(store)
        assert content(victims) == before


@pytest.mark.root
def test_a_link_of_root_leads_root_to_another_disk(tmp_path: Path, made: Path) -> None:
    """D-09: whoever owns the store, and on the way to it."""
    shutil.copytree(made, tmp_path / "store")
    (tmp_path / "store" / "commitlog").rename(tmp_path / "disk")
    give(tmp_path / "store")
    put_link(tmp_path / "store" / "commitlog", Path("../disk"), owner=0)
    put_link(tmp_path / "way", tmp_path / "store", owner=0)
    with open_small(tmp_path / "way") as store:
        store.put_message("t", b"y")
        assert len(list(store.consumer("t"))) == 4


@pytest.mark.root
@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("place", ["commitlog", "way"])
def test_a_refused_link_is_told_with_what_to_do(
    tmp_path: Path, made: Path, place: str, mode: str
) -> None:
    """D-09: of the owner's disk, or of a path that a stranger leads elsewhere."""
    shutil.copytree(made, tmp_path / "store")
    path = tmp_path / "store"
    if place == "way":
        put_link(tmp_path / "way", path)
        path = tmp_path / "way"
    else:
        (path / "commitlog").rename(tmp_path / "disk")
        put_link(path / "commitlog", tmp_path / "disk")
    with pytest.raises(OSError, match="chown -h"):
        open_small(path, mode)


@pytest.mark.root
@pytest.mark.parametrize("kind", ["directory", "lock", "store", "into", "parent"])
@pytest.mark.parametrize("owner", [0, STRANGER])
def test_a_compaction_changes_nothing_behind_a_link(
    tmp_path: Path, made: Path, kind: str, owner: int
) -> None:
    """D-09: a known name, next to the new store. A link of root to where that shall be is followed."""
    other, victim = tmp_path / "other", tmp_path / "victim"
    (victim / "sub").mkdir(parents=True)
    for name in ("a", "lock", "sub/b"):
        (victim / name).write_text("precious")
    other.mkdir()
    give(other)
    work, into = other / ".new.compacting", other / "new"
    if kind == "directory":
        put_link(work, victim, owner)
    elif kind in ("lock", "store"):
        work.mkdir()
        put_link(work / kind, victim / "lock" if kind == "lock" else victim, owner)
    elif kind == "into":
        (victim / "empty").mkdir()
        put_link(into, victim / "empty", owner)
    else:
        put_link(other / "parent", victim, owner)
        into = other / "parent" / "new"
    before = content(victim)
    followed = owner == 0 and kind in ("into", "parent")
    with open_small(made) as store:
        try:
            store.compact("t", into=into)
        except (OSError, RocketStoreError):
            assert not followed
        else:
            assert followed or kind == "store"
    assert followed or content(victim) == before


@pytest.mark.parametrize("nth", [0, 2, 6])
@pytest.mark.parametrize("place", [".new.compacting", ".new.compacting/store"])
def test_a_compaction_follows_no_link_that_is_put_in_place(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch, place: str, nth: int
) -> None:
    """D-09: not even one of this user, which may have been moved there."""
    (tmp_path / "other").mkdir()
    with open_small(made) as store:
        swap = Swap(monkeypatch, tmp_path / "other" / place, tmp_path / "victim", nth, owner=0)
        with contextlib.suppress(OSError, RocketStoreError):
            store.compact("t", into=tmp_path / "other" / "new")
        monkeypatch.undo()
    assert swap.done
    assert content(swap.victim) == swap.before


@pytest.mark.root
def test_a_compaction_uses_no_directory_of_a_stranger(tmp_path: Path, made: Path) -> None:
    work = tmp_path / ".new.compacting"
    work.mkdir()
    (work / "kept").touch()
    give(work)
    with open_small(made) as store, pytest.raises(PermissionError, match="remove it"):
        store.compact("t", into=tmp_path / "new")
    assert (work / "kept").exists()


@pytest.mark.root
def test_a_lease_is_behind_no_link_of_a_stranger(tmp_path: Path) -> None:
    """D-09; the last name is no link at all."""
    (tmp_path / "victim").mkdir()
    put_link(tmp_path / "way", tmp_path / "victim")
    lease = FileLease(tmp_path / "way" / "lease", "me")
    calls: list[Callable[[], Any]] = [lease.renew, lease.release, lease.deadline]
    for call in calls:
        with pytest.raises((OSError, ConfigError)):
            call()
    assert not os.listdir(tmp_path / "victim")


def test_links_that_lead_round_end(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    with pytest.raises(OSError, match="symbolic links"):
        syscalls.open(str(tmp_path / "one" / "file"), os.O_RDONLY)
    (tmp_path / "up").symlink_to("..")
    os.close(syscalls.open_directory(str(tmp_path / "up" / tmp_path.name / "up" / ".")))
    with pytest.raises(FileNotFoundError):
        syscalls.open("", os.O_RDONLY)
    with pytest.raises(OSError, match="name too long"):
        syscalls.open(str(tmp_path / ("n" * 256) / "file"), os.O_RDONLY)
