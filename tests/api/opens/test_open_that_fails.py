"""An open that fails and has changed nothing leaves the marks of a clean stop as they were, and no file open."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketstore import ConfigError, tools
from rocketstore.engine import open as open_module
from rocketstore.engine import shutdown, wiring
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from rocketstore.log.commitlog.checkpointer import Checkpointer
from rocketstore.log.layout.file_system import FileSystem
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.mapped_files.second_names import SecondNames
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from tests.support.live_writer import java_writer
from tests.support.small_store import SMALL, everything, open_small


def filled(path: Path) -> list[Any]:
    with open_small(path) as store:
        for number in range(30):
            store.writer("orders").put(b"%d" % number * 200, keys=f"k{number}")
        return [message.body for message in everything(store)]


def no_memory(*_: object) -> None:
    raise MemoryError


def broken(*_: object) -> None:
    raise OSError(errno.EIO, "broken")


@pytest.fixture
def bodies(tmp_path: Path) -> list[bytes]:
    """Those of the store."""
    return filled(tmp_path)


@pytest.mark.parametrize(("where", "name", "fault", "error"), [
    (wiring, "file_system", lambda _: FileSystem("nfs", network=True), ConfigError),
    (wiring, "RingBuffer", no_memory, MemoryError),
    (ConsumeQueueStore, "load", broken, OSError),
    (Checkpointer, "begin", no_memory, MemoryError),
    (SecondNames, "add", broken, OSError),
])  # fmt: skip
def test_the_next_open_finds_a_clean_stop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    fault: Any,
    error: Any,
    bodies: list[bytes],
) -> None:
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, fault)
            with pytest.raises(error):
                open_small(tmp_path)
        assert not (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert [message.body for message in everything(store)] == bodies


def test_a_new_store_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(wiring, "file_system", lambda _: FileSystem("nfs", network=True))
        with pytest.raises(ConfigError):
            open_small(tmp_path)
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"


def test_after_a_crash_the_marks_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    (tmp_path / "abort").touch()
    with monkeypatch.context() as patch:
        patch.setattr(wiring, "RingBuffer", no_memory)
        with pytest.raises(MemoryError):
            open_small(tmp_path)
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "unclean"


def test_a_rebuild_that_fails_where_a_queue_was_lost(tmp_path: Path, bodies: list[bytes]) -> None:
    """It puts nothing in its place; the next open finds it lost as this one did."""
    queue = tmp_path / "consumequeue" / "orders"
    shutil.rmtree(queue)
    for _ in range(2):
        with pytest.raises(MemoryError):
            tools.rebuild(tmp_path, run_parts=no_memory, **SMALL)
        assert not (tmp_path / "abort").exists()
        assert not queue.exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert [message.body for message in everything(store)] == bodies


def test_nothing_is_restored_on_a_disk_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bodies: list[bytes]
) -> None:
    """What a slot of the checkpoint holds behind a failed sync is not known; the other one stays."""
    store_it = CheckpointFile.store

    def failing(self: CheckpointFile, checkpoint: Any) -> None:
        store_it(self, checkpoint)
        self._failed = 0
        broken()

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "store", failing)
        with pytest.raises(OSError, match="broken"):
            open_small(tmp_path)
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert [message.body for message in everything(store)] == bodies


def opened(root: Path) -> list[str]:
    """Links to what is open there."""
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return [str(link) for link in links if os.path.realpath(link).startswith(str(root))]


def test_a_reader_that_fails_beside_a_broker_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    with java_writer(StoreLayout(tmp_path)):
        before = opened(tmp_path)
        monkeypatch.setattr(open_module, "missing_segments", broken)
        with pytest.raises(OSError, match="broken"):
            open_small(tmp_path, "r")
        assert opened(tmp_path) == before


@pytest.mark.parametrize(("where", "name"), [(shutdown, "remove_abort"), (CheckpointFile, "store")])
def test_a_second_interrupt_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, bodies: list[bytes]
) -> None:
    """On the way back. The traceback holds the frames: nothing is left to the collector."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(wiring, "RingBuffer", interrupted)
        patch.setattr(where, name, interrupted)
        with pytest.raises(KeyboardInterrupt) as _raised:
            open_small(tmp_path)
        assert opened(tmp_path) == []
    with open_small(tmp_path) as store:
        assert [message.body for message in everything(store)] == bodies
