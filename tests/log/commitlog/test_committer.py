"""The committer: from pool buffers into files."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store
from rocketstore.log.commitlog import committer as committer_module
from rocketstore.log.commitlog import flusher as flusher_module
from rocketstore.log.commitlog.committer import Committer
from tests.support.small_store import SEGMENT, log_bytes, open_still, parts, until, watched

DAY_MS = 86_400_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_still(tmp_path, "memory") as store:
        yield store


def idle(store: Store, **options: Any) -> Committer:
    """A committer without a thread: the test takes each step."""
    defaults = {"interval_ms": 200, "least_pages": 4, "thorough_interval_ms": DAY_MS}
    defaults["woken"] = False
    return Committer(parts(store).commit_log, lambda error: None, **{**defaults, **options})


def test_writes_the_range_and_moves_the_position(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S000-90: committed … wrote, at its own place, by one write."""
    calls = watched(monkeypatch, committer_module)
    committer = idle(store)
    positions = parts(store).commit_log.positions
    first = store.writer("t").put(b"first")
    committer.commit()
    assert positions.committed == first.end_offset
    second = store.writer("t").put(b"second")
    committer.commit()
    assert positions.committed == second.end_offset
    assert calls.made == ["pwrite", "pwrite"]
    assert log_bytes(tmp_path)[second.end_offset :].strip(b"\0") == b""
    assert bytes(store.get(second.physical_offset)) in log_bytes(tmp_path)


def test_commits_first_then_waits(store: Store) -> None:
    """S000-103: a step ends with the interval; the thorough interval drops the limit."""
    committer = idle(store, thorough_interval_ms=0)
    end = store.writer("t").put(b"x").end_offset
    assert committer.step() == 0.2
    assert store.visible_offset == end


def test_it_rests_where_a_put_wakes_it(store: Store) -> None:
    committer = idle(store, woken=True)
    assert committer.step() is None
    store.writer("t").put(b"x")
    assert committer.step() == 0.2  # less than the least pages: the interval brings it to the file


def test_least_pages_hold_it_back(store: Store) -> None:
    committer = idle(store)
    store.writer("t").put(b"x")
    committer.step()
    assert store.visible_offset == 0
    while store.end_offset < SEGMENT:  # a full file is always committed
        store.writer("t").put(b"x" * 900)
    committer.step()
    assert store.visible_offset == store.end_offset


def test_a_commit_wakes_who_waits(store: Store) -> None:
    """S000-104 S002-40: what moved is told, whatever a boolean would say."""
    progress = parts(store).commit_log.log.progress
    seen = progress.count
    idle(store).commit()
    assert progress.count == seen  # nothing to commit, nobody woken
    store.writer("t").put(b"x")
    idle(store).commit()
    assert progress.count > seen


def test_everything_is_committed_at_the_end(store: Store) -> None:
    """S000-105 S003-46: however much is left when it stops."""
    for _ in range(12):
        store.writer("t").put(b"x" * 900)
    parts(store).committer.stop()
    assert parts(store).commit_log.positions.committed == store.end_offset


def test_slow_commit_is_logged(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S000-98: beyond 500 ms."""
    monkeypatch.setattr(committer_module, "SLOW_COMMIT_MS", -1)
    end = store.writer("t").put(b"x").end_offset
    with caplog.at_level(logging.WARNING):
        idle(store).commit()
    assert f"/commitlog: commit up to {end} took" in caplog.text


def test_a_failed_write_fails_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-28: a write that does not succeed is no commit."""
    calls = watched(monkeypatch, committer_module)
    store = open_still(tmp_path, "memory")
    calls.errors["pwrite"] = OSError(28, "No space left on device")
    store.writer("t").put(b"x")
    store.configure(commit_least_pages=0, commit_thorough_interval_ms=0)
    parts(store).committer.wake()
    until(store, lambda: parts(store).commit_log.failure is not None)
    assert store.visible_offset == 0
    store.close()
    assert (tmp_path / "abort").exists()


def test_nothing_is_written_behind_a_failed_sync(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-13: the flusher's thread may not have told of it yet when the committer's comes by."""
    calls = watched(monkeypatch, flusher_module)
    calls.errors["fdatasync"] = OSError(5, "Input/output error")
    store.writer("t").put(b"first")
    committer = idle(store)
    committer.commit()
    store.writer("t").put(b"second")
    with pytest.raises(OSError, match="Input/output error"):
        parts(store).flusher.flush()
    calls = watched(monkeypatch, committer_module)
    with pytest.raises(OSError, match="Input/output error"):
        committer.commit()
    assert calls.made == []


def test_nothing_is_synced_behind_a_failed_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-13: as before, with the threads the other way round."""
    store.writer("t").put(b"first")
    committer = idle(store)
    committer.commit()
    calls = watched(monkeypatch, committer_module)
    calls.errors["pwrite"] = OSError(28, "No space left on device")
    store.writer("t").put(b"second")
    with pytest.raises(OSError, match="No space left"):
        committer.commit()
    calls = watched(monkeypatch, flusher_module)
    with pytest.raises(OSError, match="No space left"):
        parts(store).flusher.flush()
    assert calls.made == []
