"""The thread that makes pages ready ahead of the writer of an os store."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore import Store
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.positions import Positions
from rocketstore.log.mapped_files.populator import Populator
from tests.support.small_store import log_bytes, open_still, parts
from tests.support.waiting import wait_until

MIB = 1 << 20
SIZE = 16 * MIB


class Log:
    """Segments, the spare one and where the writer is."""

    def __init__(self) -> None:
        self.files = [MappedFile.anonymous(0, SIZE)]
        self.spare: MappedFile | None = None
        self.positions = Positions()
        self.failures: list[BaseException] = []
        self.populator = Populator(
            self.positions, self.find, lambda: self.spare, self.failures.append,
            window_bytes=4 * MIB,
        )  # fmt: skip

    def find(self, offset: int) -> MappedFile | None:
        holding = [file for file in self.files if file.start_offset <= offset < file.end_offset]
        return holding[0] if holding else None

    def writes_to(self, offset: int) -> None:
        self.positions.wrote = offset
        self.populator.wake()

    def ready_to(self, offset: int) -> None:
        wait_until(lambda: self.populator.populated >= offset)


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    assert log.populator.stop(60)
    assert log.failures == []


def test_it_works_when_woken_and_stops(log: Log) -> None:
    """S004-53 S004-55 K-48: as far as the window says, not the whole file at once."""
    log.populator.start()
    log.writes_to(6 * MIB)
    log.ready_to(10 * MIB)
    assert log.populator.stop(60)
    assert log.populator.populated <= 12 * MIB
    assert not log.populator.alive


def test_bytes_that_are_there_stay(log: Log, tmp_path: Path) -> None:
    """S004-54 D-11: pages are there, and what the writer put meanwhile is untouched."""
    path = tmp_path / f"{0:020d}"
    path.write_bytes(os.urandom(7 * MIB + 100).ljust(SIZE, b"\0"))
    before = path.read_bytes()
    log.files = [MappedFile.open(path, 0, SIZE, "write")]
    log.populator.start()
    log.writes_to(6 * MIB)
    log.ready_to(10 * MIB)
    assert log.files[0].read(0, SIZE) == before


def test_the_next_file_and_then_the_spare_one_are_entered(log: Log) -> None:
    log.files.append(MappedFile.anonymous(SIZE, 2 * MIB))
    log.spare = MappedFile.anonymous(SIZE + 2 * MIB, SIZE)
    log.populator.start()
    log.writes_to(SIZE - MIB // 2)
    log.ready_to(SIZE + 3 * MIB)


def test_without_a_next_file_it_waits_for_one(log: Log) -> None:
    log.populator.start()
    log.writes_to(SIZE - MIB)
    log.ready_to(SIZE)
    log.spare = MappedFile.anonymous(SIZE, SIZE)
    log.populator.wake()
    log.ready_to(SIZE + 3 * MIB)


def test_a_spare_of_another_place_is_left_alone(log: Log) -> None:
    log.spare = MappedFile.anonymous(5 * SIZE, SIZE)
    log.positions.wrote = SIZE
    assert log.populator.step() is None


@pytest.mark.parametrize("closed", [False, True])
def test_a_refusal_costs_only_speed(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture, closed: bool
) -> None:
    """Once a file: the store goes on, and the next file is tried again."""
    path = tmp_path / f"{0:020d}"
    path.write_bytes(bytes(SIZE))
    refused = MappedFile.open(path, 0, SIZE, "write" if closed else "read")
    if closed:
        refused.close()
    log.files = [refused]
    log.positions.wrote = MIB
    with caplog.at_level(logging.WARNING):
        assert log.populator.step() == 0
        assert log.populator.step() is None
    assert len(caplog.records) == 1
    assert str(path) in caplog.text
    log.files.append(MappedFile.anonymous(SIZE, SIZE))
    log.populator.start()
    log.writes_to(SIZE + MIB)
    log.ready_to(SIZE + 4 * MIB)


@pytest.mark.parametrize(
    ("durability", "window", "there"),
    [("os", 1 << 21, True), ("os", 0, False), ("disk", 1 << 21, False)],
)
def test_only_for_mapped_writes(tmp_path: Path, durability: str, window: int, there: bool) -> None:
    """S004-55: the option's 0 means never; ring and pool writes meet no page faults in the log."""
    store: Store = open_still(tmp_path, durability, populate_window_bytes=window)
    with store:
        assert (parts(store).populator is not None) is there
        store.writer("t").put(b"x")
    assert b"x" in log_bytes(tmp_path)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_burst_is_helped_soon(tmp_path: Path, reopened: bool) -> None:
    """Its first megabytes, too: each page that a put has to make costs it 2 to 6 µs."""
    options = {"commit_log_file_size_bytes": SIZE}
    if reopened:
        with open_still(tmp_path, "os", **options) as store:
            store.writer("t").put(b"x" * 2 * MIB)
    with open_still(tmp_path, "os", **options) as store:
        begin = store.end_offset
        writer = store.writer("t")
        for _ in range(100):
            writer.put(b"x" * 1000)
        assert store.end_offset < begin + MIB // 4
        wait_until(lambda: parts(store).populator.populated > store.end_offset)
