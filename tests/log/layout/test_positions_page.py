"""`log.positions`: the page in its file, and whom to believe (D-30)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os import syscalls
from rocketstore._native.sync.positions import MAGIC, PAGE_SIZE, Positions
from rocketstore.log.layout import positions_page as module
from rocketstore.log.layout.positions_page import (
    PositionsPage,
    State,
    boot_id,
    shown_in_this_boot,
    writer_pid,
)

pytestmark = pytest.mark.quick


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "positions"


@pytest.fixture
def page(path: Path) -> Iterator[PositionsPage]:
    page = PositionsPage.create(path)
    yield page
    page.close()


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The writer's descriptor of `lock`, which has it, and a reader's."""
    writer = syscalls.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    assert syscalls.lock_first_byte(writer)
    reader = syscalls.open(tmp_path / "lock", os.O_RDONLY)
    yield writer, reader
    os.close(reader)
    os.close(writer)


# ---- the file ----


def test_the_page_is_allocated_and_its_owners_alone(page: PositionsPage, path: Path) -> None:
    """D-31: a hole would be a signal in whoever stores a position."""
    assert path.stat().st_size == PAGE_SIZE
    assert path.stat().st_blocks * 512 >= PAGE_SIZE
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o066


def test_the_page_is_never_replaced(page: PositionsPage, path: Path) -> None:
    """D-30: who mapped it in an earlier run sees the next one."""
    reader = PositionsPage.open_readonly(path)
    inode = path.stat().st_ino
    page.close()
    again = PositionsPage.create(path)
    again.positions.wrote = 99
    assert path.stat().st_ino == inode
    assert reader.positions.wrote == 99
    again.close()
    reader.close()


def test_a_page_of_something_else_is_formatted(path: Path) -> None:
    path.write_bytes(b"\xff" * 100)
    page = PositionsPage.create(path)
    assert page.positions.magic == MAGIC
    assert page.positions.wrote == page.positions.state == 0
    page.close()


def test_without_fallocate_the_page_is_written(path: Path, probe: Any) -> None:
    probe.fail("fallocate", errno.EOPNOTSUPP)
    PositionsPage.create(path).close()
    assert path.stat().st_size == PAGE_SIZE


def test_no_room_for_the_page_leaks_nothing(path: Path, probe: Any) -> None:
    before = len(os.listdir("/proc/self/fd"))
    probe.fail("fallocate", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        PositionsPage.create(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("content", [b"", b"short", bytes(PAGE_SIZE), b"\xff" * PAGE_SIZE])
def test_what_is_no_page_counts_as_none(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileNotFoundError):
        PositionsPage.open_readonly(path)


def test_reading_a_page_that_is_not_there(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PositionsPage.open_readonly(path)
    assert not path.exists()


# ---- believing ----


def test_a_run_of_the_writer(page: PositionsPage) -> None:
    """D-30: recovering first, none last, a new run id each time."""
    assert page.state is State.NONE
    first = page.begin()
    assert page.state is State.RECOVERING
    assert page.positions.run_id == first != bytes(16)
    assert (page.positions.pid, page.positions.boot_id) == (os.getpid(), boot_id())
    page.go_live()
    assert page.state is State.LIVE
    page.end()
    assert page.state is State.NONE
    assert page.begin() != first


def test_the_private_positions_are_published(page: PositionsPage, path: Path) -> None:
    """D-31"""
    private = Positions()
    private.wrote, private.flushed = 700, 600
    reader = PositionsPage.open_readonly(path)
    page.publish(private)
    assert (reader.positions.wrote, reader.positions.flushed) == (700, 600)
    assert reader.positions.changes == 1
    reader.close()


def test_each_step_of_a_run_is_announced(page: PositionsPage) -> None:
    for step in (page.begin, page.go_live, page.end):
        seen = page.positions.changes
        step()
        assert page.positions.changes == seen + 1


def test_a_live_page_is_believed(page: PositionsPage, path: Path, locks: tuple[int, int]) -> None:
    reader = PositionsPage.open_readonly(path)
    assert not reader.believable(locks[1])
    page.begin()
    assert not reader.believable(locks[1])
    page.go_live()
    assert reader.believable(locks[1])
    page.end()
    assert not reader.believable(locks[1])
    reader.close()


def test_a_page_of_another_boot_is_not_believed(
    page: PositionsPage, locks: tuple[int, int]
) -> None:
    page.begin()
    page.go_live()
    page.positions.boot_id = b"another boot, so"
    assert not page.believable(locks[1])


def test_a_page_whose_writer_died_is_not_believed(
    page: PositionsPage, locks: tuple[int, int]
) -> None:
    """It says "live" for ever; the lock went with the process."""
    page.begin()
    page.go_live()
    assert page.believable(locks[1])
    syscalls.unlock_first_byte(locks[0])
    assert page.state is State.LIVE
    assert not page.believable(locks[1])


def test_a_page_is_not_believed_while_java_has_the_lock(
    page: PositionsPage, monkeypatch: pytest.MonkeyPatch, locks: tuple[int, int]
) -> None:
    page.begin()
    page.go_live()
    monkeypatch.setattr(syscalls, "first_byte_holder", lambda fd: 4711)
    assert not page.believable(locks[1])


def test_nothing_is_believed_where_the_boot_is_not_known(
    page: PositionsPage, monkeypatch: pytest.MonkeyPatch, locks: tuple[int, int]
) -> None:
    monkeypatch.setattr(module, "boot_id", lambda: bytes(16))
    page.begin()
    page.go_live()
    assert not page.believable(locks[1])


def test_a_run_that_changes_during_the_look_is_not_believed(
    page: PositionsPage, monkeypatch: pytest.MonkeyPatch, locks: tuple[int, int]
) -> None:
    page.begin()
    page.go_live()

    def change_hands(fd: int) -> int:
        page.begin()
        page.go_live()
        return -1

    monkeypatch.setattr(syscalls, "first_byte_holder", change_hands)
    assert not page.believable(locks[1])


def test_an_impossible_state_is_none(page: PositionsPage) -> None:
    page.positions.state = 77
    assert page.state is State.NONE


def test_the_boot_id_is_the_kernels() -> None:
    text = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert boot_id().hex() == text.replace("-", "")


def test_the_writers_pid_is_for_messages(page: PositionsPage, path: Path) -> None:
    assert writer_pid(path) is None
    page.begin()
    assert writer_pid(path) == os.getpid()
    page.end()
    assert writer_pid(path) is None
    assert writer_pid(path.with_name("missing")) is None


def test_what_was_shown_in_this_boot(page: PositionsPage, path: Path) -> None:
    """A recovery that is killed leaves it to the next one; a start of the machine takes it."""
    page.begin()
    page.positions.visible = 4711
    page.go_live()
    for _ in range(2):  # a death, and one of the recovery
        assert page.shown == shown_in_this_boot(path) == 4711
        page.begin()
    page.positions.boot_id = bytes(range(16))
    assert page.shown == shown_in_this_boot(path) == 0
    page.begin()
    assert page.shown == shown_in_this_boot(path) == page.positions.visible == 0
    assert shown_in_this_boot(path.with_name("missing")) == 0
