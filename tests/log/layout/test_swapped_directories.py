"""A directory of a store becomes a link after it was checked: nothing behind the link changes."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import tools
from rocketstore._native.os import syscalls
from rocketstore._native.os.store_roots import hold_root
from tests.support.small_store import SMALL, open_small

#: Calls by which a name or a file changes.
CHANGES = (
    "open", "open_unnamed", "link", "link_unnamed", "rename", "rename_noreplace", "unlink", "mkdir",
    "rmdir",
)  # fmt: skip
STRANGER = 4321


def put(store: rocketstore.Store, count: int = 40) -> None:
    writer = store.writer("orders")
    for n in range(count):
        writer.put(b"x" * 200, keys=f"k{n}")


def write(path: Path) -> None:
    with open_small(path) as store:
        put(store)
        with store.consumer("orders", group="g") as consumer:
            consumer.poll()
            consumer.commit()
        store.trim(before_offset=store.end_offset)


def remove(path: Path) -> None:
    open_small(path).destroy()


def rebuild(path: Path) -> None:
    tools.rebuild(path, **SMALL)


def recover(path: Path) -> None:
    """The tail of the log is cut, and kept in `quarantine`."""
    (path / "abort").touch()
    last = max((path / "commitlog").iterdir())
    with last.open("r+b") as file:
        file.seek(len(last.read_bytes().rstrip(b"\0")))
        file.write(b"garbage" * 20)
    write(path)


class Swap:
    """Puts a link to a copy in place of a directory before the `nth` change of something below."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        place: Path,
        victim: Path,
        nth: int,
        owner: int = STRANGER,
    ) -> None:
        self.owner = owner
        self.place, self.victim, self.left = place, victim, nth
        self.done = False
        for name in CHANGES:
            monkeypatch.setattr(syscalls, name, self._before(getattr(syscalls, name)))

    def _before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def swapped(*arguments: Any, **named: Any) -> Any:
            below = [str(each) for each in arguments if str(each).startswith(f"{self.place}/")]
            reads = call.__name__ == "open" and arguments[1] == os.O_RDONLY
            if below and not reads and not self.done and self.place.is_dir():
                self.left -= 1
                if self.left < 0:
                    self._swap()
            return call(*arguments, **named)

        return swapped

    def _swap(self) -> None:
        self.done = True
        shutil.copytree(self.place, self.victim)
        self.before = content(self.victim)
        os.rename(self.place, f"{self.victim}.kept")
        self.place.symlink_to(self.victim)
        if self.place.parent.name != "rocketstore" and "consumequeue/" not in str(self.place):
            os.lchown(self.place, self.owner, self.owner)


def content(root: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(root)): (path.lstat().st_mode, path.is_file() and path.read_bytes())
        for path in sorted(root.rglob("*"))
    }


#: Any user's links are refused below these; others are if neither root nor the owner made them.
OWN = ("rocketstore/tmp", "rocketstore/live", "rocketstore/quarantine", "consumequeue/orders",
       "consumequeue/orders/0")  # fmt: skip
OUTER = ("commitlog", "consumequeue", "index", "config", "rocketstore")


@pytest.mark.parametrize("nth", [0, 2])
@pytest.mark.parametrize("work", [write, remove, rebuild, recover])
@pytest.mark.parametrize(
    "place", [*OWN, *(pytest.param(name, marks=pytest.mark.root) for name in OUTER)]
)
def test_nothing_changes_behind_a_link_that_was_put_in_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    work: Callable[[Path], None],
    nth: int,
    root: Path,
) -> None:
    """D-09: between the check of a directory and its use."""
    with open_small(root) as made:
        put(made)
    for name in OWN[:3]:
        (root / name).mkdir(exist_ok=True)
        (root / name / f"{0:020d}").touch()
    if place in OUTER:  # no link of its owner leads root out of it
        os.chown(root, STRANGER, STRANGER)
    swap = Swap(monkeypatch, root / place, tmp_path / "victim", nth)
    with contextlib.suppress(OSError, rocketstore.RocketStoreError):
        work(root)
    monkeypatch.undo()
    if swap.done:
        assert content(swap.victim) == swap.before


def test_a_call_below_a_root_follows_no_link(tmp_path: Path) -> None:
    """D-09: not even one of the owner, below the first directory."""
    hold_root(str(tmp_path / "store"))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "file").touch()
    (tmp_path / "store" / "consumequeue").mkdir(parents=True)
    link = tmp_path / "store" / "consumequeue" / "orders"
    link.symlink_to(tmp_path / "foreign")
    file = str(link / "file")
    calls: list[Callable[[], object]] = [
        lambda: syscalls.open(file, os.O_RDWR),
        lambda: syscalls.open(str(link / "new"), os.O_RDWR | os.O_CREAT),
        lambda: syscalls.open_unnamed(str(link)),
        lambda: syscalls.open_directory(str(link)),
        lambda: syscalls.sync_directory(str(link)),
        lambda: syscalls.unlink(file),
        lambda: syscalls.mkdir(str(link / "new")),
        lambda: syscalls.rmdir(str(link / "new")),
        lambda: syscalls.rename(file, str(tmp_path / "store" / "lock")),
        lambda: syscalls.rename_noreplace(str(tmp_path / "foreign" / "file"), str(link / "new")),
        lambda: syscalls.link(file, str(tmp_path / "store" / "lock")),
        lambda: syscalls.link(str(tmp_path / "foreign" / "file"), str(link / "new")),
    ]
    for call in calls:
        with pytest.raises(OSError, match="symbolic links are not followed here") as caught:
            call()
        assert caught.value.errno == errno.ELOOP
    assert os.listdir(tmp_path / "foreign") == ["file"]


def test_a_link_of_the_owner_right_below_the_root_is_followed(tmp_path: Path) -> None:
    """D-09"""
    hold_root(str(tmp_path / "store"))
    (tmp_path / "store").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "store" / "commitlog").symlink_to("../disk")
    path = str(tmp_path / "store" / "commitlog" / "file")
    os.close(syscalls.open(path, os.O_RDWR | os.O_CREAT))
    syscalls.sync_directory(str(tmp_path / "store" / "commitlog"))
    syscalls.rename(path, path + "2")
    assert os.listdir(tmp_path / "disk") == ["file2"]
    with pytest.raises(NotADirectoryError):
        syscalls.unlink(path + "2/below")
    syscalls.unlink(path + "2")
