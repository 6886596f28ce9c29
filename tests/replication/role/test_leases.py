"""Leases that cannot be asked in time, and files of a lease that somebody else has made."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from rocketstore import ConfigError, FencedError, Store
from rocketstore.replication.role import lease as leases
from rocketstore.replication.role.fence import fence_of
from rocketstore.replication.role.lease import SECONDS_MOST, FileLease, keep_lease
from tests.support.small_store import engine_of, open_small
from tests.support.waiting import wait_until


def _closed(store: Store) -> bool:
    return fence_of(engine_of(store)).error is not None


class Hanging:
    """Answers the first questions, and then only when it is let go."""

    def __init__(self, answers: int, held_s: float = 60.0) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self._answers, self._held_s = answers, held_s

    def deadline(self) -> float:
        self._answers -= 1
        if self._answers < 0:
            self.asked.set()
            self.go.wait()
        return time.monotonic() + self._held_s


def test_the_last_deadline_counts_while_a_question_hangs(tmp_path: Path) -> None:
    lease = Hanging(1, held_s=0.7)
    with open_small(tmp_path) as store:
        keep_lease(engine_of(store), lease)
        try:
            wait_until(lease.asked.is_set)
            wait_until(lambda: _closed(store), patience_s=20)
            with pytest.raises(FencedError, match="lease"):
                store.put_message("t", b"refused")
        finally:
            lease._held_s = 60.0
            lease.go.set()
        wait_until(lambda: not _closed(store))
        store.put_message("t", b"taken")


def test_a_lock_of_another_process_holds_no_fence_open(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    lease = FileLease(path, "me", 0.7)
    with open_small(tmp_path / "s") as store:
        assert lease.renew()
        keep_lease(engine_of(store), lease)
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            wait_until(lambda: _closed(store), patience_s=20)
            with pytest.raises(FencedError, match="lease"):
                store.put_message("t", b"refused")


def test_a_first_question_that_hangs_holds_up_no_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "ANSWER_S", 0.05)
    lease = Hanging(0)
    with open_small(tmp_path) as store:
        keep_lease(engine_of(store), lease)
        assert _closed(store)
        lease.go.set()
        wait_until(lambda: not _closed(store))


def test_a_first_question_that_fails_is_told(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "lease").symlink_to("victim")
    with open_small(tmp_path / "s") as store:
        with pytest.raises(OSError, match="lease"):
            keep_lease(engine_of(store), FileLease(tmp_path / "lease", "me"))
        assert _closed(store)


@pytest.mark.parametrize("kind", ["link", "dangling", "hard link", "fifo", "directory", "device"])
def test_nothing_but_a_plain_file_is_a_lease(tmp_path: Path, kind: str) -> None:
    path, victim = tmp_path / "lease", tmp_path / "victim"
    victim.write_text("precious")
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "dangling":
        path.symlink_to(tmp_path / "made")
    elif kind == "hard link":
        os.link(victim, path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    lease = FileLease(path, "me")
    for act in (lease.renew, lease.release, lease.deadline):
        with pytest.raises((OSError, ConfigError)):
            act()
    assert victim.read_text() == "precious"
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "content",
    [
        "[" * 4090,
        '{"owner": "other", "until": %s}' % ("9" * 400),
        '{"owner": "other", "until": 1e999}',
        '{"owner": "other", "until": Infinity}',
        '{"owner": "other", "until": NaN}',
        '{"owner": "other", "until": 1e18}',
        '{"owner": "me", "until": Infinity}',
    ],
    ids=["deep", "digits", "overflow", "infinity", "nan", "far", "mine"],
)
def test_a_lease_that_nobody_can_have_written_is_free(tmp_path: Path, content: str) -> None:
    (tmp_path / "lease").write_text(content)
    lease = FileLease(tmp_path / "lease", "me")
    assert lease.deadline() is None
    lease.release()
    assert lease.renew()
    assert (lease.deadline() or 0) < time.monotonic() + SECONDS_MOST


def test_a_lease_of_more_than_a_day_is_refused(tmp_path: Path) -> None:
    FileLease(tmp_path / "lease", "me", SECONDS_MOST)
    with pytest.raises(ConfigError, match="up to 86400"):
        FileLease(tmp_path / "lease", "me", SECONDS_MOST * 2)
