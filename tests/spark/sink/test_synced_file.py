"""Files that go to the disk while they are written."""

import os
import threading
from pathlib import Path

import pytest

from rocketstore.spark.sink import staging
from rocketstore.spark.sink.staging import SyncedFile

PIECE = memoryview(b"0123456789" * 10)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STEP_BYTES", 2 * len(PIECE))


def test_what_is_written_is_there_and_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append("on the way"))
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append("at the end"))
    with SyncedFile(str(tmp_path / "f")) as file:
        for _ in range(9):
            file.write(PIECE)
        file.finish()
    assert (tmp_path / "f").read_bytes() == bytes(PIECE) * 9
    assert synced[0] == "on the way"
    assert synced[-1] == "at the end"


def test_writing_goes_on_while_a_sync_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(_: int) -> None:
        begun.release()
        assert go_on.wait(60)

    monkeypatch.setattr(os, "fdatasync", slow)
    with SyncedFile(str(tmp_path / "f")) as file:
        for _ in range(20):
            file.write(PIECE)
        assert begun.acquire(timeout=60)
        assert not begun.acquire(blocking=False)  # one at a time
        go_on.set()
        file.finish()
    assert (tmp_path / "f").stat().st_size == 20 * len(PIECE)


def test_a_sync_that_failed_on_the_way_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last sync would say that all is well: Linux tells of a lost page once."""

    def failing(_: int) -> None:
        raise OSError(5, "lost")

    monkeypatch.setattr(os, "fdatasync", failing)

    def write_all() -> None:
        with SyncedFile(str(tmp_path / "f")) as file:
            file.write(PIECE[:50])
            file.write(PIECE)
            file.write(PIECE[:50])
            file.finish()

    with pytest.raises(OSError, match="lost"):
        write_all()
    assert not (tmp_path / "f").exists()
