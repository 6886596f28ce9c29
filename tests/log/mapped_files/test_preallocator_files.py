"""Segments made ahead of puts: order, limits, errors that reach who waits, nothing left behind."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import (
    BackpressureError,
    DiskFullError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.log.mapped_files import preallocator as module
from rocketstore.log.mapped_files.preallocator import Preallocator
from tests.support.file_tools import LONG_S, SIZE, Disk
from tests.support.waiting import wait_until


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def failures() -> list[BaseException]:
    return []


@pytest.fixture
def make(disk: Disk, failures: list[BaseException]) -> Iterator[Callable[..., Preallocator]]:
    made: list[Preallocator] = []

    def start(**options: Any) -> Preallocator:
        preallocator = Preallocator(disk.create, failures.append, **options)
        preallocator.start()
        made.append(preallocator)
        return preallocator

    yield start
    disk.gate.set()
    for preallocator in made:
        assert preallocator.stop(LONG_S)
        preallocator.discard()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


Make = Callable[..., Preallocator]
FULL = (errno.ENOSPC, "No space left on device", "/store/commitlog/x")


# ---- asking and taking ----


def test_a_segment_is_made_and_handed_over(make: Make, disk: Disk) -> None:
    """S000-59 S004-20 S004-48 S004-58."""
    file = make().take(0, LONG_S)
    assert (file.start_offset, file.size) == (0, SIZE)
    assert disk.names == [file.name]


def test_a_segment_that_is_ready_is_not_made_again(make: Make, disk: Disk) -> None:
    """S004-42 S004-49: asked for once, found ready, and then it is the caller's."""
    preallocator = make()
    assert preallocator.request(0)
    wait_until(lambda: preallocator.spare() is not None)
    assert preallocator.request(0)
    spare = preallocator.spare()
    assert preallocator.take(0, LONG_S) is spare
    assert disk.asked == [0]
    assert preallocator.spare() is None


def test_the_next_one_is_made_too(make: Make, disk: Disk) -> None:
    """S000-59 S004-22: one awaited, one for later."""
    preallocator = make()
    preallocator.take(0, LONG_S)
    assert preallocator.request(SIZE)
    assert preallocator.take(SIZE, LONG_S).start_offset == SIZE
    assert disk.asked == [0, SIZE]


def test_the_smaller_start_comes_first_and_two_are_the_most(make: Make, disk: Disk) -> None:
    """S004-40 S004-43 S004-46."""
    preallocator = make()
    disk.gate.clear()
    preallocator.request(4 * SIZE)
    disk.busy()
    with preallocator._guard():  # while the first is being made
        preallocator._requests.clear()
    assert preallocator.request(9 * SIZE)
    assert preallocator.request(5 * SIZE)
    assert not preallocator.request(6 * SIZE)
    disk.gate.set()
    assert preallocator.take(5 * SIZE, LONG_S).start_offset == 5 * SIZE
    assert preallocator.take(9 * SIZE, LONG_S).start_offset == 9 * SIZE
    assert disk.asked == [4 * SIZE, 5 * SIZE, 9 * SIZE]


def test_what_is_needed_now_takes_the_place_of_what_is_needed_last(
    make: Make, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    preallocator = make()
    disk.gate.clear()
    preallocator.request(SIZE)
    preallocator.request(2 * SIZE)
    disk.busy()
    call = threads.submit(preallocator.take, 0, LONG_S)
    wait_until(lambda: any(r.waiting for r in preallocator._requests.values()))
    disk.gate.set()
    assert call.result(LONG_S).start_offset == 0
    assert disk.asked[:2] == [SIZE, 0]
    assert not preallocator.request(0)
    assert preallocator.take(SIZE, LONG_S).start_offset == SIZE
    assert disk.asked == [SIZE, 0]


def test_what_the_log_has_gone_past_is_removed(make: Make, disk: Disk) -> None:
    """S004-51: ready, or still being made."""
    preallocator = make()
    preallocator.request(0)
    wait_until(lambda: preallocator.spare() is not None)
    disk.gate.clear()
    preallocator.request(SIZE)
    disk.busy()
    disk.busy()
    disk.gate.set()
    file = preallocator.take(2 * SIZE, LONG_S)
    assert disk.asked == [0, SIZE, 2 * SIZE]
    assert disk.names == [file.name]


def test_a_segment_that_java_removed_meanwhile_is_made_again(
    make: Make, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """D-04: acknowledged messages must not go into a file without a name."""
    preallocator = make()
    preallocator.request(0)
    wait_until(lambda: preallocator.spare() is not None)
    spare = preallocator.spare()
    assert spare is not None
    os.unlink(spare.path)
    with caplog.at_level(logging.WARNING):
        file = preallocator.take(0, LONG_S)
    assert os.path.exists(file.path)
    assert file is not spare
    assert "removed by another process" in caplog.text


def test_a_late_wish_for_what_was_handed_over_is_no_wish(make: Make, disk: Disk) -> None:
    """Between `take` and the publishing of the segment another put may still see the old end."""
    preallocator = make()
    preallocator.take(0, LONG_S)
    assert not preallocator.request(0)
    preallocator.take(SIZE, LONG_S)
    assert disk.asked == [0, SIZE]
    assert preallocator.alive


def test_many_threads_get_one_segment_each(make: Make, disk: Disk) -> None:
    preallocator = make()
    taken: list[int] = []
    lock, after = threading.Lock(), [0]

    def put() -> None:
        for _ in range(10):
            with lock:
                file = preallocator.take(after[0], LONG_S)
                after[0] += SIZE
                preallocator.request(after[0])
                taken.append(file.start_offset)

    workers = [threading.Thread(target=put) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(LONG_S)
    assert taken == [n * SIZE for n in range(40)]
    assert disk.asked == sorted(set(disk.asked))


# ---- errors ----


def test_an_error_reaches_who_waits_and_the_next_call_works(make: Make, disk: Disk) -> None:
    """S000-32 S004-47 S004-56: the real cause, which is then forgotten (K-36)."""
    preallocator = make()
    disk.errors = [DiskFullError(*FULL)]
    with pytest.raises(DiskFullError) as caught:
        preallocator.take(0, LONG_S)
    assert caught.value.errno == errno.ENOSPC
    assert preallocator.alive
    assert preallocator.take(0, LONG_S).start_offset == 0


def test_everyone_who_waits_hears_the_error(
    make: Make, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    preallocator = make()
    disk.gate.clear()
    disk.errors = [OSError(errno.EIO, "Input/output error")]
    calls: list[Future[MappedFile]] = [
        threads.submit(preallocator.take, 0, LONG_S) for _ in range(3)
    ]
    wait_until(lambda: any(r.waiting == 3 for r in preallocator._requests.values()))
    disk.gate.set()
    for call in calls:
        error = call.exception(LONG_S)
        assert isinstance(error, OSError)
        assert error.errno == errno.EIO
    assert disk.asked == [0]


def test_an_error_that_nobody_waits_for_is_tried_again(make: Make, disk: Disk) -> None:
    preallocator = make()
    disk.errors = [DiskFullError(*FULL), DiskFullError(*FULL)]
    preallocator.request(0)
    wait_until(lambda: preallocator.spare() is not None)
    assert disk.asked == [0, 0, 0]
    assert preallocator.take(0, LONG_S).start_offset == 0


def test_what_nobody_waits_for_is_not_tried_for_ever(make: Make, disk: Disk) -> None:
    """Once the pause is as long as it may be, the wish is forgotten; the put that needs it asks again."""
    preallocator = make()
    preallocator._backoff_s = module.BACKOFF_MAX_S / 2
    disk.errors = [DiskFullError(*FULL)]
    preallocator.request(0)
    disk.busy()
    wait_until(lambda: not preallocator._requests)
    assert disk.asked == [0]
    assert preallocator.take(0, LONG_S).start_offset == 0


def test_tries_are_paced(make: Make, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """K-36: 10 ms, doubling to 1 s; one line in the log for one cause."""
    preallocator = make()
    disk.errors = [DiskFullError(*FULL) for _ in range(4)]
    with caplog.at_level(logging.WARNING):
        preallocator.request(0)
        wait_until(lambda: preallocator.spare() is not None)
    pauses = [b - a for a, b in zip(disk.times, disk.times[1:], strict=False)]
    for pause, least in zip(pauses, (0.010, 0.020, 0.040, 0.080), strict=True):
        assert pause >= least
    assert sum("cannot be made" in r.getMessage() for r in caplog.records) == 1
    assert module.BACKOFF_MAX_S == 1.0


def test_a_wait_that_takes_too_long_names_what_it_waits_for(
    make: Make, disk: Disk, threads: ThreadPoolExecutor
) -> None:
    """S004-48 S004-49 D-15: the request stays, a later call finds its segment."""
    preallocator = make()
    disk.gate.clear()
    with pytest.raises(BackpressureError, match="segment at 0 was not ready"):
        preallocator.take(0, 0.001)
    disk.busy()
    with pytest.raises(BackpressureError, match="it is being made"):
        preallocator.take(0, 0.001)
    disk.gate.set()
    assert preallocator.take(0, LONG_S).start_offset == 0
    assert disk.asked == [0]


def test_a_late_answer_tells_the_last_error(make: Make, disk: Disk) -> None:
    preallocator = make()
    preallocator._backoff_s = 500.0  # the next failure pauses as long as it may
    disk.errors = [DiskFullError(*FULL)]
    with pytest.raises(DiskFullError):
        preallocator.take(0, LONG_S)
    with pytest.raises(BackpressureError, match="No space left") as caught:
        preallocator.take(0, 0.001)
    assert isinstance(caught.value.__cause__, DiskFullError)
    assert disk.asked == [0]


def test_slow_creation_is_logged_with_the_queue_length(
    make: Make, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S004-52."""
    monkeypatch.setattr(module, "SLOW_CREATION_MS", -1)
    with caplog.at_level(logging.INFO):
        make().take(0, LONG_S)
    assert "creating the segment at 0 took" in caplog.text
    assert "queue length 1, puts waiting: 1" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    caplog.clear()
    monkeypatch.setattr(module, "VERY_SLOW_CREATION_MS", -1)
    ahead = make()
    with caplog.at_level(logging.INFO):
        ahead.request(SIZE)
        wait_until(lambda: ahead.spare() is not None)
    assert "queue length 1, puts waiting: 0" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    caplog.clear()
    monkeypatch.setattr(module, "SLOW_CREATION_MS", 1e9)
    with caplog.at_level(logging.INFO):
        make().take(2 * SIZE, LONG_S)
    assert "took" not in caplog.text


@pytest.mark.parametrize("error", [FileExistsError(errno.EEXIST, "File exists"), ValueError("bug")])
def test_what_no_disk_explains_fails_the_store(
    make: Make, disk: Disk, failures: list[BaseException], error: Exception
) -> None:
    """D-06: a name that we do not know of. Whoever waits hears it at once, and so does the next one."""
    preallocator = make()
    disk.errors = [error]
    for _ in range(2):
        with pytest.raises(StoreFailedError) as caught:
            preallocator.take(0, LONG_S)
        assert repr(caught.value.__cause__) == repr(error)  # a copy, without frames
    assert preallocator.stop(LONG_S)
    assert failures == [error]
    assert not preallocator.request(0)


# ---- end ----


def test_unused_segments_are_removed_at_the_end(make: Make, disk: Disk) -> None:
    """S004-57 D-07: and none is made any more."""
    preallocator = make()
    used = preallocator.take(0, LONG_S)
    preallocator.request(SIZE)
    wait_until(lambda: preallocator.spare() is not None)
    assert len(disk.names) == 2
    assert preallocator.stop(LONG_S)
    preallocator.discard()
    assert disk.names == [used.name]
    assert not used.closed
    with pytest.raises(StoreClosedError):
        preallocator.take(SIZE, LONG_S)
    assert not preallocator.request(SIZE)


def test_stop_wakes_who_waits(make: Make, disk: Disk, threads: ThreadPoolExecutor) -> None:
    preallocator = make()
    disk.gate.clear()
    call = threads.submit(preallocator.take, 0, LONG_S)
    disk.busy()
    stopping = threads.submit(preallocator.stop, LONG_S)
    assert isinstance(call.exception(LONG_S), StoreClosedError)
    preallocator.discard()
    disk.gate.set()
    assert stopping.result(LONG_S)
    assert disk.names == []  # what was being made was not wanted any more


def test_a_segment_that_is_not_needed_is_withdrawn_by_whoever_made_it(make: Make) -> None:
    withdrawn: list[int] = []
    preallocator = make(withdraw=lambda file: withdrawn.append(file.start_offset))
    preallocator.take(0, LONG_S)
    preallocator.request(SIZE)
    wait_until(lambda: preallocator.spare() is not None)
    preallocator.stop()
    preallocator.discard()
    assert withdrawn == [SIZE]
