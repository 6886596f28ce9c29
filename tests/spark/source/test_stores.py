"""How the Spark face opens a store to read it, without Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native.os import syscalls
from rocketstore.engine import open as opening
from rocketstore.log.layout.positions_page import PositionsPage
from rocketstore.spark import stores
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch


@pytest.fixture
def recovering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A store that this process seems to recover, until the function is called."""
    monkeypatch.setattr(opening, "RECOVERY_S", 0.01)
    with rocketstore.open(tmp_path / "s", commit_log_file_size_bytes=1 << 20) as store:
        store.writer("t").put(b"one")
    lock = syscalls.open(str(tmp_path / "s" / "lock"), os.O_RDWR)
    assert syscalls.lock_first_byte(lock)
    page = PositionsPage.create(tmp_path / "s" / "rocketstore" / "positions")
    page.begin()

    def end() -> None:
        page.end()
        syscalls.close(lock)

    yield end
    page.close()


def rows(root: Path) -> int:
    scans, _ = plan_batch(ReadOptions.parse({"path": str(root)}, stream=False))
    return sum(columns.rows for scan in scans for columns in scan)


def test_a_batch_waits_for_a_recovery(tmp_path: Path, recovering: Callable[[], None]) -> None:
    """An empty answer would be a lie."""
    timer = threading.Timer(0.3, recovering)
    timer.start()
    assert rows(tmp_path / "s") == 1
    timer.join()


def test_a_wait_for_a_recovery_ends(
    tmp_path: Path, recovering: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "RECOVERING_S", 0.3)
    with pytest.raises(SparkFaceError, match=rf"RS_STORE_RECOVERING.*{os.getpid()}"):
        rows(tmp_path / "s")
    recovering()
