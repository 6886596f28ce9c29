"""Links in place of a store's directories and files: which are followed, and which are refused."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

import rocketstore
from rocketstore import tools
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.directories import QueueDirectories
from tests.support.log_store import image
from tests.support.small_store import open_small

pytestmark = pytest.mark.quick


def test_directories_may_be_links_of_their_owner(tmp_path: Path) -> None:
    """D-09"""
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "commitlog").symlink_to(tmp_path / "disk")
    make_directories(StoreLayout(tmp_path / "store"))
    assert (tmp_path / "store" / "commitlog").is_symlink()


@pytest.mark.root
def test_links_of_others_are_refused(tmp_path: Path) -> None:
    """D-09"""
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").mkdir()
    link = tmp_path / "store" / "commitlog"
    link.symlink_to(tmp_path / "disk")
    os.lchown(link, 4321, 4321)
    with pytest.raises(PermissionError, match="link of user 4321, and user 0") as caught:
        make_directories(StoreLayout(tmp_path / "store"))
    assert caught.value.filename == str(link)


@pytest.mark.parametrize("owner", [-1, pytest.param(4321, marks=pytest.mark.root)])
@pytest.mark.parametrize("name", ["live", "quarantine", "tmp"])
def test_a_directory_where_files_are_removed_is_no_link(
    tmp_path: Path, name: str, owner: int
) -> None:
    """D-09; files behind it are not the store's, whoever made the link."""
    foreign = tmp_path / "disk" / "precious"
    foreign.parent.mkdir()
    foreign.touch()
    link = tmp_path / "store" / "rocketstore" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(foreign.parent)
    os.lchown(link, owner, owner)
    with pytest.raises(PermissionError, match="put a directory in its place") as caught:
        rocketstore.open(tmp_path / "store")
    assert caught.value.filename == str(link)
    assert foreign.exists()


@pytest.mark.parametrize("place", ["orders", "orders/0", "other", "orders/9"])
@pytest.mark.parametrize("mode", ["rw", "r+"])
def test_no_writer_follows_a_link_of_a_topic_or_a_queue(
    tmp_path: Path, place: str, mode: str
) -> None:
    """D-09: whoever made it. A reader, which does not follow it, serves the queue from the log."""
    store, disk = tmp_path / "store", tmp_path / "disk"
    with open_small(store) as writing:
        writing.writer("orders").put(b"x")
    link = store / "consumequeue" / place
    shutil.rmtree(link, ignore_errors=True)
    disk.mkdir()
    link.symlink_to(disk)
    before = image(store)
    with pytest.raises(PermissionError, match="put the directory there") as caught:
        open_small(store, mode)
    assert caught.value.filename == str(link)
    assert image(store) == before
    with open_small(store, "r") as reading:
        assert [message.body for message in reading.consumer("orders")] == [b"x"]
    assert not os.listdir(disk)


@pytest.mark.root
@pytest.mark.parametrize("size", [0, 180])
@pytest.mark.parametrize(
    "pattern", ["commitlog/*", "consumequeue/orders/0/*", "index/*", "rocketstore/checkpoint"]
)
def test_no_foreign_file_is_written_by_a_second_name(
    tmp_path: Path, pattern: str, size: int
) -> None:
    """D-09: a hard link of a file that has another owner is none of the store's files."""
    store, foreign = tmp_path / "store", tmp_path / "precious"
    with open_small(store) as writing:
        writing.writer("orders").put(b"x", keys="k")
    foreign.write_bytes(bytes(range(size)))
    os.chown(foreign, 4321, 4321)
    (place,) = store.glob(pattern)
    place.unlink()
    place.hardlink_to(foreign)
    with contextlib.suppress(PermissionError, rocketstore.RocketStoreError):
        open_small(store, "r+").close()
    assert foreign.read_bytes() == bytes(range(size))


@pytest.mark.root
@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_verify_names_a_link_that_it_does_not_follow(tmp_path: Path, name: str, root: Path) -> None:
    """D-09: it does not say that what is behind it is missing, for which `rebuild` would be advised."""
    with open_small(root) as writing:
        writing.writer("orders").put(b"x", keys="k")
    link = (root / name).rename(tmp_path / name)
    (root / name).symlink_to(link)
    os.lchown(root / name, 4321, 4321)
    with pytest.raises(OSError, match="is followed once it is root's"):
        tools.verify(root)
    os.lchown(root / name, 0, 0)
    assert tools.verify(root).ok


def test_a_link_that_comes_after_the_open_is_not_followed(tmp_path: Path) -> None:
    """D-09: the dispatcher makes nothing behind it."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "queues").mkdir()
    (tmp_path / "queues" / "orders").symlink_to(tmp_path / "disk")
    with pytest.raises(PermissionError, match="put the directory there"):
        QueueDirectories(tmp_path / "queues").make(tmp_path / "queues" / "orders" / "0", 0)
    assert not os.listdir(tmp_path / "disk")


@pytest.mark.parametrize("writing", [False, True])
def test_a_link_to_a_store_names_the_store(tmp_path: Path, writing: bool) -> None:
    """D-09; a reader notices that it leads to another store."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "store")
    open_small(tmp_path / "other").close()
    with open_small(tmp_path / "store") as writer:
        writer.writer("t").put(b"x")
        if not writing:
            writer.close()
        with open_small(link, "r") as reader:
            assert [m.body for m in reader.consumer("t")] == [b"x"]
            assert tools.verify(link).ok
            link.unlink()
            link.symlink_to(tmp_path / "other")
            with pytest.raises(rocketstore.StoreReplacedError):
                reader.consumer("t").poll()


def test_a_log_elsewhere_may_be_a_link(tmp_path: Path) -> None:
    """D-09"""
    with open_small(tmp_path / "store") as writer:
        writer.writer("t").put(b"x")
    (tmp_path / "store" / "commitlog").rename(tmp_path / "disk")
    (tmp_path / "log").symlink_to(tmp_path / "disk")
    with open_small(tmp_path / "store", "r", commit_log_dir=str(tmp_path / "log")) as reader:
        assert [m.body for m in reader.consumer("t")] == [b"x"]
