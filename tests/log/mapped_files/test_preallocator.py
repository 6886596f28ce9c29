"""The preallocator: two wishes at most, in order, errors to who waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketstore import BackpressureError, DiskFullError
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.mapped_files.preallocator import Preallocator

SIZE = 4096


class Disk:
    """Makes files in memory, when it is allowed to; notes the order."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.errors: list[OSError] = []
        self.gate = threading.Event()
        self.gate.set()
        self.began = threading.Event()

    def create(self, start: int) -> MappedFile:
        self.began.set()
        assert self.gate.wait(20)
        if self.errors:
            raise self.errors.pop(0)
        self.made.append(start)
        return MappedFile.anonymous(start, SIZE)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def service(disk: Disk) -> Iterator[Preallocator]:
    failures: list[BaseException] = []
    service = Preallocator(disk.create, failures.append)
    service.start()
    yield service
    disk.gate.set()
    service.stop()
    service.discard()
    assert not failures


def idle(disk: Disk) -> Preallocator:
    """Without a thread: the test takes each step."""
    return Preallocator(disk.create, lambda error: None)


def test_take_waits_for_the_file(service: Preallocator, disk: Disk) -> None:
    """S004-48 S004-58: the caller sleeps until its own request is done, no longer."""
    disk.gate.clear()
    got: list[MappedFile] = []
    thread = threading.Thread(target=lambda: got.append(service.take(0, 20)))
    thread.start()
    assert disk.began.wait(20)
    assert not got
    disk.gate.set()
    thread.join(20)
    assert got[0].start_offset == 0


def test_two_wishes_at_most(disk: Disk) -> None:
    """S004-40: the one that is needed and the one after it."""
    service = idle(disk)
    assert [service.request(n * SIZE) for n in (1, 2, 3)] == [True, True, False]
    service.step()
    assert service.request(3 * SIZE)


def test_wished_once(disk: Disk) -> None:
    """S004-42 S004-51: a wish that waits, or is done, is not made again."""
    service = idle(disk)
    for _ in range(3):
        assert service.request(SIZE)
    service.step()
    assert service.request(SIZE)
    assert service.step() is None
    assert disk.made == [SIZE]


def test_smaller_offset_first(disk: Disk) -> None:
    """S004-43: it is needed first."""
    service = idle(disk)
    service.request(2 * SIZE)
    service.request(SIZE)
    service.step()
    service.step()
    assert disk.made == [SIZE, 2 * SIZE]


def test_taken_is_forgotten(service: Preallocator, disk: Disk) -> None:
    """S004-49: success removes it from the table."""
    service.request(SIZE)
    assert service.take(SIZE, 20).start_offset == SIZE
    assert service.spare() is None


def test_late_is_backpressure(service: Preallocator, disk: Disk) -> None:
    """S004-49: not in time: the put fails, the file is made all the same, and the next put gets it."""
    disk.gate.clear()
    with pytest.raises(BackpressureError, match=r"not ready after 0\.0 s"):
        service.take(SIZE, 0.01)
    disk.gate.set()
    assert service.take(SIZE, 20).start_offset == SIZE
    assert disk.made == [SIZE]


def test_error_goes_to_who_waits(service: Preallocator, disk: Disk) -> None:
    """S004-47 S004-56: with its cause, at once, and it works again afterwards (K-36)."""
    disk.errors = [DiskFullError(28, "no room"), OSError(5, "bad block")]
    with pytest.raises(DiskFullError, match="no room"):
        service.take(SIZE, 20)
    with pytest.raises(OSError, match="bad block"):
        service.take(SIZE, 20)
    assert service.take(SIZE, 20).start_offset == SIZE


def test_old_error_is_not_told_to_a_new_put(disk: Disk) -> None:
    """An error that nobody waited for is forgotten by the next wish."""
    service = idle(disk)
    disk.errors = [OSError(28, "no room")]
    service.request(SIZE)
    service.step()
    service.start()
    assert service.take(SIZE, 20).start_offset == SIZE
    service.stop()


def test_runs_until_stopped(service: Preallocator, disk: Disk) -> None:
    """S004-50 S004-57: sleeps without wishes, ends when told to, and keeps what it made."""
    assert service.alive
    service.take(0, 20)
    service.take(SIZE, 20)
    assert service.stop(20)
    assert [service.alive, service.failure] == [False, None]


def test_discard_removes_the_file(tmp_path: Path) -> None:
    """D-07: a spare that was never used does not stay behind."""
    path = tmp_path / f"{SIZE:020d}"

    def create(start: int) -> MappedFile:
        path.write_bytes(bytes(SIZE))
        return MappedFile.open(str(path), start, SIZE, "write")

    service = Preallocator(create, lambda error: None)
    service.request(SIZE)
    service.step()
    assert path.exists()
    service.discard()
    assert not path.exists()


def test_unforeseen_errors_fail_the_store(disk: Disk) -> None:
    """K-36: another kind of exception does not end the thread in silence."""
    failures: list[BaseException] = []
    failed = threading.Event()

    def fail(error: BaseException) -> None:
        failures.append(error)
        failed.set()

    def broken(start: int) -> MappedFile:
        raise RuntimeError("broken")

    create: Callable[[int], MappedFile] = broken
    service = Preallocator(create, fail)
    service.start()
    service.request(0)
    assert failed.wait(20)
    assert isinstance(failures[0], RuntimeError)
    service.stop()


def test_who_was_interrupted_gets_the_same_segment_again(disk: Disk, service: Preallocator) -> None:
    """An exception of a signal's handler between take and the caller's note of it."""
    first = service.take(0, 10)
    assert service.take(0, 10) is first
    assert service.take(SIZE, 10) is not first
    assert disk.made == [0, SIZE]
