"""Segments made ahead of puts: order, errors that reach the put that waits, nothing left behind."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

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


@pytest.fixture
def preallocator(make: Make) -> Preallocator:
    """One that runs."""
    return make()


def test_a_segment_is_made_and_handed_over(make: Make, disk: Disk) -> None:
    """S000-59 S004-20 S004-48 S004-58."""
    file = make().take(0, LONG_S)
    assert (file.start_offset, file.size) == (0, SIZE)
    assert disk.names == [file.name]


def test_a_segment_that_is_ready_is_not_made_again(disk: Disk, preallocator: Preallocator) -> None:
    """S004-42 S004-49: asked for once, found ready, and then it is the caller's."""
    assert preallocator.request(0)
    wait_until(lambda: preallocator.spare() is not None)
    assert preallocator.request(0)
    spare = preallocator.spare()
    assert preallocator.take(0, LONG_S) is spare
    assert disk.asked == [0]
    assert preallocator.spare() is None


def test_the_next_one_is_made_too(disk: Disk, preallocator: Preallocator) -> None:
    """S000-59 S004-22: one awaited, one for later."""
    preallocator.take(0, LONG_S)
    assert preallocator.request(SIZE)
    assert preallocator.take(SIZE, LONG_S).start_offset == SIZE
    assert disk.asked == [0, SIZE]


def test_one_is_wanted_at_a_time(disk: Disk, preallocator: Preallocator) -> None:
    """S004-40: while it is being made, and while it is ready."""
    disk.gate.clear()
    assert preallocator.request(0)
    disk.busy()
    assert [preallocator.request(0), preallocator.request(SIZE)] == [True, False]
    disk.gate.set()
    wait_until(lambda: preallocator.spare() is not None)
    assert not preallocator.request(SIZE)
    preallocator.take(0, LONG_S)
    assert preallocator.request(SIZE)
    assert preallocator.take(SIZE, LONG_S).start_offset == SIZE
    assert disk.asked == [0, SIZE]


def test_what_is_needed_now_takes_the_place_of_what_is_needed_last(
    disk: Disk, threads: ThreadPoolExecutor, preallocator: Preallocator
) -> None:
    """S004-43."""
    disk.gate.clear()
    preallocator.request(SIZE)
    disk.busy()
    call = threads.submit(preallocator.take, 0, LONG_S)
    wait_until(lambda: preallocator._wanted == 0)
    disk.gate.set()
    file = call.result(LONG_S)
    assert file.start_offset == 0
    assert disk.asked == [SIZE, 0]
    assert disk.names == [file.name]
    assert not preallocator.request(0)


def test_what_the_log_has_gone_past_is_removed(disk: Disk, preallocator: Preallocator) -> None:
    """S004-51."""
    preallocator.request(0)
    wait_until(lambda: preallocator.spare() is not None)
    file = preallocator.take(2 * SIZE, LONG_S)
    assert disk.asked == [0, 2 * SIZE]
    assert disk.names == [file.name]


def test_a_segment_that_java_removed_meanwhile_is_made_again(
    disk: Disk, caplog: pytest.LogCaptureFixture, preallocator: Preallocator
) -> None:
    """D-04: acknowledged messages must not go into a file without a name."""
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


def test_a_late_wish_for_what_was_handed_over_is_no_wish(
    disk: Disk, preallocator: Preallocator
) -> None:
    """Between `take` and the publishing of the segment another put may still see the old end."""
    preallocator.take(0, LONG_S)
    assert not preallocator.request(0)
    preallocator.take(SIZE, LONG_S)
    assert disk.asked == [0, SIZE]
    assert preallocator.alive


def test_the_segment_of_a_put_that_was_interrupted_is_known(
    disk: Disk, preallocator: Preallocator
) -> None:
    """An exception of a signal's handler between `take` and what the caller does with it."""
    assert preallocator.given is None
    first = preallocator.take(0, LONG_S)
    assert preallocator.given is first
    preallocator.request(SIZE)
    wait_until(lambda: preallocator.spare() is not None)
    assert preallocator.given is first
    assert preallocator.take(SIZE, LONG_S) is preallocator.given is not first


# ---- errors ----


def test_an_error_reaches_who_waits_and_the_next_call_works(
    disk: Disk, preallocator: Preallocator
) -> None:
    """S000-32 S004-47 S004-56: the real cause, which is then forgotten (K-36)."""
    disk.errors = [DiskFullError(*FULL)]
    with pytest.raises(DiskFullError) as caught:
        preallocator.take(0, LONG_S)
    assert caught.value.errno == errno.ENOSPC
    assert preallocator.alive
    assert preallocator.take(0, LONG_S).start_offset == 0


def test_an_error_that_nobody_waits_for_is_tried_again(
    disk: Disk, preallocator: Preallocator
) -> None:
    disk.errors = [DiskFullError(*FULL), DiskFullError(*FULL)]
    preallocator.request(0)
    wait_until(lambda: preallocator.spare() is not None)
    assert disk.asked == [0, 0, 0]
    assert preallocator.take(0, LONG_S).start_offset == 0


def test_what_nobody_waits_for_is_not_tried_for_ever(
    disk: Disk, preallocator: Preallocator
) -> None:
    """Once the pause is as long as it may be, the wish is forgotten; the put that needs it asks again."""
    preallocator._backoff_s = module.BACKOFF_MAX_S / 2
    disk.errors = [DiskFullError(*FULL)]
    preallocator.request(0)
    disk.busy()
    wait_until(lambda: preallocator._wanted is None)
    assert disk.asked == [0]
    assert preallocator.take(0, LONG_S).start_offset == 0


def test_tries_are_paced(
    disk: Disk, caplog: pytest.LogCaptureFixture, preallocator: Preallocator
) -> None:
    """K-36: 10 ms, doubling to 1 s; one line in the log for one cause."""
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
    disk: Disk, threads: ThreadPoolExecutor, preallocator: Preallocator
) -> None:
    """S004-48 S004-49 D-15: the request stays, a later call finds its segment."""
    disk.gate.clear()
    with pytest.raises(BackpressureError, match="segment at 0 was not ready"):
        preallocator.take(0, 0.001)
    disk.busy()
    with pytest.raises(BackpressureError, match="it is being made"):
        preallocator.take(0, 0.001)
    disk.gate.set()
    assert preallocator.take(0, LONG_S).start_offset == 0
    assert disk.asked == [0]


def test_a_late_answer_tells_the_last_error(disk: Disk, preallocator: Preallocator) -> None:
    preallocator._backoff_s = 500.0  # the next failure pauses as long as it may
    disk.errors = [DiskFullError(*FULL)]
    with pytest.raises(DiskFullError):
        preallocator.take(0, LONG_S)
    with pytest.raises(BackpressureError, match="No space left") as caught:
        preallocator.take(0, 0.001)
    assert isinstance(caught.value.__cause__, DiskFullError)
    assert disk.asked == [0]


def test_slow_creation_is_logged_with_the_puts_that_wait(
    make: Make, disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S004-52."""
    monkeypatch.setattr(module, "SLOW_CREATION_MS", -1)
    with caplog.at_level(logging.INFO):
        make().take(0, LONG_S)
    assert "creating the segment at 0 took" in caplog.text
    assert "puts waiting: 1" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    caplog.clear()
    monkeypatch.setattr(module, "VERY_SLOW_CREATION_MS", -1)
    ahead = make()
    with caplog.at_level(logging.INFO):
        ahead.request(SIZE)
        wait_until(lambda: ahead.spare() is not None)
    assert "puts waiting: 0" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    caplog.clear()
    monkeypatch.setattr(module, "SLOW_CREATION_MS", 1e9)
    with caplog.at_level(logging.INFO):
        make().take(2 * SIZE, LONG_S)
    assert "took" not in caplog.text


@pytest.mark.parametrize("error", [FileExistsError(errno.EEXIST, "File exists"), ValueError("bug")])
def test_what_no_disk_explains_fails_the_store(
    disk: Disk, failures: list[BaseException], error: Exception, preallocator: Preallocator
) -> None:
    """D-06: a name that we do not know of. Whoever waits hears it at once, and so does the next one."""
    disk.errors = [error]
    for _ in range(2):
        with pytest.raises(StoreFailedError) as caught:
            preallocator.take(0, LONG_S)
        assert repr(caught.value.__cause__) == repr(error)  # a copy, without frames
    assert preallocator.stop(LONG_S)
    assert failures == [error]
    assert not preallocator.request(0)


# ---- end ----


def test_unused_segments_are_removed_at_the_end(disk: Disk, preallocator: Preallocator) -> None:
    """S004-50 S004-57 D-07: and none is made any more."""
    used = preallocator.take(0, LONG_S)
    preallocator.request(SIZE)
    wait_until(lambda: preallocator.spare() is not None)
    assert len(disk.names) == 2
    assert preallocator.alive
    assert preallocator.stop(LONG_S)
    assert [preallocator.alive, preallocator.failure] == [False, None]
    preallocator.discard()
    assert disk.names == [used.name]
    assert not used.closed
    with pytest.raises(StoreClosedError):
        preallocator.take(SIZE, LONG_S)
    assert not preallocator.request(SIZE)


def test_stop_wakes_who_waits(
    disk: Disk, threads: ThreadPoolExecutor, preallocator: Preallocator
) -> None:
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
