"""`log.lock`: one writer a store, whoever it is; the marks of who wrote last and how it ended."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from rocketstore.errors import StoreClosedError, StoreLockedError
from rocketstore.log.layout import lock as module
from rocketstore.log.layout.lock import (
    OUR_MARK,
    StoreLock,
    abort_exists,
    create_abort,
    remove_abort,
)
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import PositionsPage

pytestmark = pytest.mark.quick

Child = Callable[[Callable[[], object]], None]

#: Another process that opens the store for writing, or tries to.
OTHER_STORE = """
import sys
from pathlib import Path
from rocketstore.errors import StoreLockedError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.positions_page import PositionsPage
layout = StoreLayout(Path(sys.argv[1]))
try:
    lock = StoreLock.acquire(layout)
except StoreLockedError as error:
    print(error, flush=True)
    sys.exit(4)
page = PositionsPage.create(layout.positions)
page.begin()
print("locked", flush=True)
sys.stdin.read()
"""

#: A broker: POSIX lock on byte 0 after opening the file, "lock" written.
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b" if sys.argv[2] == "old" else "w+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
file.write(b"lock")
file.flush()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(layout: StoreLayout) -> Iterator[StoreLock]:
    lock = StoreLock.acquire(layout)
    yield lock
    lock.release()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@contextmanager
def other_process(program: str, *arguments: str) -> Iterator[int]:
    """Its pid, from when it has the lock until it was told to end."""
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process.pid


# ---- who has it ----


def test_a_free_store_is_locked_and_left(layout: StoreLayout) -> None:
    assert StoreLock.probe(layout) is None
    lock = StoreLock.acquire(layout)
    assert lock.held
    assert StoreLock.probe(layout) == -1
    lock.release()
    lock.release()
    assert not lock.held
    assert StoreLock.probe(layout) is None


def test_probing_creates_nothing(layout: StoreLayout) -> None:
    assert StoreLock.probe(layout) is None
    assert not layout.lock.exists()


def test_a_second_open_in_the_process_is_refused_at_once(
    layout: StoreLayout, held: StoreLock
) -> None:
    page = PositionsPage.create(layout.positions)
    page.begin()
    before = time.monotonic()
    with pytest.raises(StoreLockedError, match=rf"this process \({os.getpid()}\)") as caught:
        StoreLock.acquire(layout)
    assert time.monotonic() - before < module.RETRY_MS / 1000
    assert caught.value.path == str(layout.lock)
    page.close()


def test_a_lock_that_is_left_at_this_moment_is_no_error(
    layout: StoreLayout, held: StoreLock
) -> None:
    """Its descriptor may be closed, or another file's, while an open of another thread asks whose it is."""
    spare = os.dup(held._fd)
    os.close(held._fd)
    try:
        assert held.is_of(os.stat(layout.lock))
        assert not held.is_of(os.stat(layout.root))
    finally:
        os.dup2(spare, held._fd)
        os.close(spare)


def test_another_rocketstore_is_named_by_its_pid(layout: StoreLayout) -> None:
    """D-04, D-35"""
    with other_process(OTHER_STORE, str(layout.root)) as pid:
        before = time.monotonic()
        with pytest.raises(
            StoreLockedError, match=f"rocketstore process {pid}, or a forked child of it"
        ):
            StoreLock.acquire(layout)
        assert time.monotonic() - before >= module.RETRY_MS / 1000
    StoreLock.acquire(layout).release()


def test_a_process_of_the_same_number_is_not_this_one(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs in two containers are process 1 both, and share a volume."""
    with other_process(OTHER_STORE, str(layout.root)) as pid:
        monkeypatch.setattr(module.os, "getpid", lambda: pid)
        with pytest.raises(StoreLockedError) as caught:
            StoreLock.acquire(layout)
        for text in (str(caught.value), str(module.describe_holder(layout))):
            assert f"rocketstore process {pid} of another container" in text
            assert "this process (" not in text


def test_another_process_is_refused_while_we_hold_it(layout: StoreLayout, held: StoreLock) -> None:
    command = [sys.executable, "-c", OTHER_STORE, str(layout.root)]
    done = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert done.returncode == 4, done.stderr
    assert b"another rocketstore process" in done.stdout


def test_a_holder_that_leaves_within_the_retry_is_no_error(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-35: a child that is about to end still has its parent's lock."""
    other = syscalls.open(layout.lock, os.O_RDWR | os.O_CREAT)
    assert syscalls.lock_first_byte(other)
    tries = []

    def wait(self: object, seen: int, timeout_ms: int) -> int:
        tries.append(timeout_ms)
        if len(tries) == 3:
            os.close(other)
        return seen

    monkeypatch.setattr(module, "EventCount", lambda: type("Waiting", (), {"wait": wait})())
    lock = StoreLock.acquire(layout)
    assert len(tries) == 3
    lock.release()


def test_a_running_broker_is_named_by_its_pid(layout: StoreLayout) -> None:
    """D-04, K-39: refused before anything was read or changed, without a retry."""
    with other_process(BROKER, str(layout.lock), "new") as pid:
        assert StoreLock.probe(layout) == pid
        before = time.monotonic()
        with pytest.raises(StoreLockedError, match=rf"process {pid} \(.+RocketMQ"):
            StoreLock.acquire(layout)
        assert time.monotonic() - before < module.RETRY_MS / 1000
    assert layout.lock.read_bytes() == b"lock"


def test_a_broker_cannot_lock_what_we_hold(layout: StoreLayout, held: StoreLock) -> None:
    """D-04"""
    command = [sys.executable, "-c", BROKER, str(layout.lock), "old"]
    done = subprocess.run(command, capture_output=True, check=False, input=b"")
    assert done.returncode != 0
    assert b"BlockingIOError" in done.stderr


def test_a_holder_without_a_number_here_is_another_container(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "lock_first_byte", lambda fd: False)
    monkeypatch.setattr(syscalls, "first_byte_holder", lambda fd: 0)
    with pytest.raises(StoreLockedError, match="another container"):
        StoreLock.acquire(layout)


def test_closing_another_descriptor_of_the_file_does_not_unlock(
    layout: StoreLayout, held: StoreLock
) -> None:
    """A POSIX lock would be lost here."""
    os.close(os.open(layout.lock, os.O_RDWR))
    layout.lock.read_bytes()
    assert StoreLock.probe(layout) == -1


def test_a_link_in_place_of_the_lock_is_not_followed(layout: StoreLayout, tmp_path: Path) -> None:
    """D-09"""
    (tmp_path / "elsewhere").write_bytes(b"")
    layout.lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        StoreLock.acquire(layout)


def test_a_lock_file_that_was_replaced_is_taken_again(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise two processes would each hold "the" lock."""
    real = syscalls.lock_first_byte
    replaced: list[int] = []

    def lock_first_byte(fd: int) -> bool:
        if not replaced:
            replaced.append(fd)
            layout.lock.unlink()
            layout.lock.touch()
        return real(fd)

    monkeypatch.setattr(syscalls, "lock_first_byte", lock_first_byte)
    lock = StoreLock.acquire(layout)
    assert StoreLock.probe(layout) == -1
    lock.release()


def test_refused_and_failed_locks_leak_no_descriptor(layout: StoreLayout, held: StoreLock) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreLockedError):
        StoreLock.acquire(layout)
    StoreLock.probe(layout)
    assert len(os.listdir("/proc/self/fd")) == before


# ---- forks ----


def test_a_childs_end_does_not_unlock(
    layout: StoreLayout, held: StoreLock, in_child: Child
) -> None:
    """D-35"""

    def child() -> None:
        assert not held.held
        held.release()

    in_child(child)
    in_child(lambda: None)
    assert held.held
    assert StoreLock.probe(layout) == -1


def test_a_child_may_not_mark(held: StoreLock, in_child: Child) -> None:
    """D-35"""

    def child() -> None:
        with pytest.raises(StoreClosedError):
            held.mark_ours()

    in_child(child)


def test_a_child_does_not_keep_the_lock_for_the_dead_parent(
    layout: StoreLayout, held: StoreLock
) -> None:
    """The child's copy of the descriptor was closed by the hook; closing ours is enough."""
    reader, writer = os.pipe()
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.write(told, b"forked")
        os.read(reader, 1)
        os._exit(0)
    os.read(ready, 6)
    os.close(held._fd)  # as the kernel does when a process dies
    held._fd = -1
    assert StoreLock.probe(layout) is None
    for end in (writer, reader, ready, told):
        os.close(end)
    os.waitpid(pid, 0)


def test_a_release_unlocks_although_a_raw_fork_has_the_descriptor(
    layout: StoreLayout, held: StoreLock
) -> None:
    """D-35: fork(2) from C runs no hook, so the child still has the descriptor."""
    reader, writer = os.pipe()
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    assert StoreLock.probe(layout) == -1
    held.release()
    assert StoreLock.probe(layout) is None
    os.close(writer)
    os.close(reader)
    os.waitpid(pid, 0)


# ---- marks ----


def test_the_mark_says_who_wrote_last(layout: StoreLayout) -> None:
    """D-01"""
    first = StoreLock.acquire(layout)
    assert first.previous == b""
    first.mark_ours()
    first.release()
    assert layout.lock.read_bytes() == OUR_MARK == b"rock"
    second = StoreLock.acquire(layout)
    assert second.previous == b"rock"
    second.release()
    with other_process(BROKER, str(layout.lock), "old"):
        pass
    third = StoreLock.acquire(layout)
    assert third.previous == b"lock"
    assert layout.lock.read_bytes() == b"lock"
    third.release()


def test_the_mark_is_synced(layout: StoreLayout, held: StoreLock, probe: Any) -> None:
    """D-01: an error of the disk must not pass for a mark."""
    probe.fail("fsync", 5)
    with pytest.raises(OSError, match="Input/output"):
        held.mark_ours()
    assert probe.calls_made() == 1


def test_who_does_not_hold_the_lock_may_not_mark(held: StoreLock) -> None:
    held.release()
    with pytest.raises(StoreClosedError):
        held.mark_ours()


def test_a_new_lock_file_takes_the_stores_owner_and_mode(layout: StoreLayout) -> None:
    """D-09"""
    layout.root.chmod(0o750)
    StoreLock.acquire(layout).release()
    assert layout.lock.stat().st_mode & 0o777 == 0o640
    assert layout.lock.stat().st_uid == layout.root.stat().st_uid


# ---- abort ----


def test_abort_is_there_while_a_store_runs(layout: StoreLayout) -> None:
    """format.md 9: as RocketMQ 5 writes it."""
    assert not abort_exists(layout)
    create_abort(layout)
    assert abort_exists(layout)
    assert layout.abort.read_bytes() == str(os.getpid()).encode()
    remove_abort(layout)
    assert not abort_exists(layout)


def test_abort_of_a_crash_is_taken_over(layout: StoreLayout) -> None:
    layout.abort.write_bytes(b"a pid that is longer than ours")
    create_abort(layout)
    assert layout.abort.read_bytes() == str(os.getpid()).encode()


def test_removing_an_abort_that_is_not_there(layout: StoreLayout) -> None:
    before = sorted(os.listdir(layout.root))
    remove_abort(layout)
    assert sorted(os.listdir(layout.root)) == before


def test_abort_is_synced_with_its_directory(layout: StoreLayout, probe: Any) -> None:
    probe.fail("fsync", 5, times=0)
    create_abort(layout)
    assert probe.calls_made() == 2
    remove_abort(layout)
    assert probe.calls_made() == 3
