"""Pages ahead of the writer, step by step. The worker's rounds are called here, one by one."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.mapped_file import MappedFile
from rocketstore._native.positions import Positions
from rocketstore.errors import StoreClosedError
from rocketstore.log import populator as module
from rocketstore.log.populator import EASY_PAUSE_S, EASY_STEP_BYTES, STEP_BYTES, Populator

STEP = STEP_BYTES
WINDOW = 4 * STEP
SIZE = 10 * STEP
FIRST = 3 * SIZE


class File:
    """Stands for a segment; notes what was populated, in steps."""

    def __init__(self, start_offset: int, size: int = SIZE) -> None:
        self.start_offset = start_offset
        self.size = size
        self.end_offset = start_offset + size
        self.path = f"{start_offset:020d}"
        self.steps: list[float] = []
        self.advice: list[str] = []
        self.error: Exception | None = None
        self.done = threading.Event()

    def advise(self, kind: str) -> None:
        self.advice.append(kind)

    def populate(self, begin: int, end: int) -> None:
        if self.error is not None:
            raise self.error
        assert 0 <= begin < end <= self.size
        self.steps.append(begin / STEP)
        if end - begin > STEP:
            self.populate(begin + STEP, end)
        if len(self.steps) == 4:
            self.done.set()


class Log:
    """Segments, the spare one and where the writer is."""

    def __init__(self) -> None:
        self.positions = Positions()
        self.positions.wrote = FIRST
        self.files: list[File] = [File(FIRST)]
        self.spare: File | None = None
        self.failures: list[BaseException] = []

    def find(self, offset: int) -> Any:
        holding = [f for f in self.files if f.start_offset <= offset < f.end_offset]
        return holding[0] if holding else None

    def populator(self, window_bytes: int = WINDOW, *, hurried: bool = True) -> Populator:
        spare: Any = lambda: self.spare  # noqa: E731
        populator = Populator(
            self.positions, self.find, spare, self.failures.append, window_bytes=window_bytes
        )
        populator._hurried = hurried
        return populator


class Clock:
    """The time as the populator sees it: stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(module, "populate_ahead", ahead)
    return made


def ahead(file: File, positions: Positions, populated: int, window_bytes: int) -> int:
    """What the native function does beside a writer that stands still."""
    end = min(positions.wrote + window_bytes, file.end_offset)
    file.populate(populated - file.start_offset, end - file.start_offset)
    return end


def run(populator: Populator) -> None:
    """Rounds until it sleeps; it sleeps until woken."""
    for _ in range(1000):
        pause = populator.step()
        if pause is None:
            return
        assert pause == 0
    pytest.fail("never done")


def test_a_store_that_is_hardly_written_dirties_no_page(log: Log) -> None:
    populator = log.populator()
    run(populator)
    log.positions.wrote = FIRST + STEP - 1
    run(populator)
    assert log.files[0].steps == []


def test_the_window_grows_with_what_was_written_up_to_its_bound(log: Log) -> None:
    """S004-53 S004-54: instead of touching a whole file at once (K-48)."""
    populator = log.populator()
    log.positions.wrote = FIRST + STEP
    run(populator)
    assert log.files[0].steps == [1]
    log.positions.wrote = FIRST + 2 * STEP
    run(populator)
    assert log.files[0].steps == [1, 2, 3]
    log.positions.wrote = FIRST + 5 * STEP
    run(populator)
    assert log.files[0].steps == [1, 2, 3, 5, 6, 7, 8]
    assert populator.populated == FIRST + 9 * STEP


def test_nothing_is_done_twice(log: Log) -> None:
    populator = log.populator()
    log.positions.wrote = FIRST + 4 * STEP
    run(populator)
    run(populator)
    assert log.files[0].steps == [4, 5, 6, 7]


def test_the_next_file_and_then_the_spare_one_are_entered(log: Log) -> None:
    populator = log.populator()
    log.files.append(File(FIRST + SIZE, 2 * STEP))
    log.spare = File(FIRST + SIZE + 2 * STEP)
    log.positions.wrote = FIRST + 9 * STEP
    run(populator)
    assert log.files[0].steps == [9]
    assert log.files[1].steps == [0, 1]
    assert log.spare.steps == [0]


def test_without_a_next_file_it_waits_for_one(log: Log) -> None:
    populator = log.populator()
    log.positions.wrote = FIRST + 9 * STEP
    run(populator)
    assert log.files[0].steps == [9]
    log.spare = File(FIRST + SIZE)
    run(populator)
    assert log.spare.steps == [0, 1, 2]


def test_a_spare_of_another_place_is_left_alone(log: Log) -> None:
    populator = log.populator()
    log.spare = File(FIRST + 5 * SIZE)
    log.positions.wrote = FIRST + 9 * STEP
    run(populator)
    assert log.spare.steps == []


@pytest.mark.parametrize("error", [OSError(errno.ENOMEM, "no pages"), StoreClosedError("closed")])
def test_a_refusal_costs_only_speed(
    log: Log, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a file: the store goes on, and the next file is tried again."""
    populator = log.populator()
    log.files[0].error = error
    log.files.append(File(FIRST + SIZE))
    with caplog.at_level(logging.WARNING):
        for written in (4, 5, 6, 7):
            log.positions.wrote = FIRST + written * STEP
            run(populator)
    assert len(caplog.records) == 1
    log.positions.wrote = FIRST + 9 * STEP
    run(populator)
    assert log.files[1].steps == [0, 1, 2]
    assert log.failures == []


def test_its_thread_works_when_woken_and_stops(log: Log) -> None:
    populator = log.populator()
    populator.start()
    log.positions.wrote = FIRST + 4 * STEP
    populator.wake()
    assert log.files[0].done.wait(30)
    assert populator.stop(30)
    assert log.files[0].steps == [4, 5, 6, 7]
    assert log.failures == []


def test_bytes_that_are_there_stay(tmp_path: Path) -> None:
    """D-11: the page that is written at this moment may be populated."""
    path = tmp_path / f"{0:020d}"
    path.write_bytes(os.urandom(STEP + 100).ljust(3 * STEP, b"\0"))
    before = path.read_bytes()
    file = MappedFile.open(path, 0, 3 * STEP, "write")
    positions = Positions()
    populator = Populator(
        positions, lambda offset: file, lambda: None, lambda error: None, window_bytes=WINDOW
    )
    populator._hurried = True
    positions.wrote = STEP + 100
    run(populator)
    assert populator.populated > STEP + 100
    assert file.read(0, 3 * STEP) == before
    file.close()


def test_beside_a_slow_writer_pages_come_one_by_one(log: Log, clock: Clock) -> None:
    """Small steps with pauses between them, and no read-ahead: whoever is woken has the processor soon."""
    populator = log.populator(hurried=False)
    clock.now += 1.0
    log.positions.wrote = FIRST + STEP
    pauses = []
    while (pause := populator.step()) is not None:
        pauses.append(pause)
        clock.now += max(pause, 0.0001)
        log.positions.wrote += 1000
    assert pauses[0] == 0, "how fast the writer is shows at once"
    assert pauses[1:] == [EASY_PAUSE_S] * (len(pauses) - 1)
    assert len(pauses) > STEP // EASY_STEP_BYTES
    assert populator.populated >= log.positions.wrote + STEP
    assert log.files[0].advice == ["random", "normal"] * len(pauses)


def test_a_writer_that_becomes_fast_is_noticed_at_once(log: Log, clock: Clock) -> None:
    populator = log.populator(hurried=False)
    log.positions.wrote = FIRST + 4 * STEP
    clock.now += 1.0
    populator.step()
    populator.step()
    clock.now += EASY_PAUSE_S
    log.positions.wrote += 100_000  # 200 MB/s
    assert populator.step() == 0
    assert populator.populated == log.positions.wrote + WINDOW
    assert log.files[0].advice == ["random", "normal"] * 2 + ["hugepage"]


def test_pages_are_large_beside_a_fast_writer_only(log: Log) -> None:
    """Said once a file: each advice stops everybody who needs a page for a moment."""
    populator = log.populator()
    log.files.append(File(FIRST + SIZE))
    log.positions.wrote = FIRST + 9 * STEP
    run(populator)
    assert [file.advice for file in log.files] == [["hugepage"], ["hugepage"]]


def test_a_fast_writer_may_wait_now_and_then(log: Log, clock: Clock) -> None:
    """Only a while of rest ends the hurry; being woken does not."""
    populator = log.populator()
    log.positions.wrote = FIRST + STEP
    run(populator)
    clock.now += 0.01
    log.positions.wrote = FIRST + 2 * STEP  # 100 MiB/s
    run(populator)
    assert log.files[0].steps == [1, 2, 3]
    clock.now += 0.019
    log.positions.wrote = FIRST + 3 * STEP  # 53
    run(populator)
    assert log.files[0].steps == [1, 2, 3, 4, 5]
    clock.now += 0.011
    log.positions.wrote = FIRST + 3 * STEP + STEP // 2
    assert populator.step() == 0
    assert populator.step() == EASY_PAUSE_S
    assert log.files[0].advice == ["hugepage", "nohugepage", *["random", "normal"] * 2]
    assert populator.populated == FIRST + 6 * STEP + 2 * EASY_STEP_BYTES
    clock.now += 10.0
    log.positions.wrote += STEP
    assert populator.step() == EASY_PAUSE_S
    clock.now += 0.001
    log.positions.wrote += STEP
    assert populator.step() == 0
    assert log.files[0].advice[-1] == "hugepage"


@pytest.mark.parametrize("error", [OSError(errno.ENOMEM, "no pages"), StoreClosedError("closed")])
def test_read_ahead_comes_back_behind_a_refusal(log: Log, error: Exception) -> None:
    """Who reads the file reads it from front to end."""
    populator = log.populator(hurried=False)
    log.files[0].error = error
    log.positions.wrote = FIRST + 4 * STEP
    populator.step()
    assert log.files[0].advice == ["random", "normal"]
