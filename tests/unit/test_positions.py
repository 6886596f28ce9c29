"""`_native.sync.positions`: values with one writer each, seen in order, waited for."""

from __future__ import annotations

import gc
import io
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.mapping import mapped_files
from rocketstore._native.sync.positions import MAGIC, PAGE_SIZE, Positions
from rocketstore.log.layout.positions_page import PositionsPage, State
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.quick, pytest.mark.timeout(300, method="thread")]

NAMES = ["wrote", "committed", "flushed", "visible", "dispatched", "indexed", "minimum"]
Child = Callable[[Callable[[], object]], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "positions"


@pytest.fixture
def page(path: Path) -> Iterator[PositionsPage]:
    page = PositionsPage.create(path)
    yield page
    page.close()


# ---- values ----


@pytest.fixture
def positions() -> Positions:
    """All at 0."""
    return Positions()


def test_a_new_page_is_zero_and_says_what_it_is(positions: Positions) -> None:
    assert [getattr(positions, name) for name in NAMES] == [0] * 7
    assert (positions.state, positions.pid, positions.changes) == (0, 0, 0)
    assert positions.run_id == positions.boot_id == bytes(16)
    assert positions.magic == MAGIC
    assert positions.writable


@pytest.mark.parametrize("name", [*NAMES, "state", "pid"])
def test_each_value_has_its_own_place(name: str, positions: Positions) -> None:
    others = {*NAMES, "state", "pid"} - {name}
    for value in (1, 2**63 - 1, -1):
        setattr(positions, name, value)
        assert getattr(positions, name) == value
        assert {getattr(positions, other) for other in others} == {0}


def test_ids_have_16_bytes(positions: Positions) -> None:
    positions.run_id, positions.boot_id = b"r" * 16, b"b" * 16
    assert (positions.run_id, positions.boot_id) == (b"r" * 16, b"b" * 16)
    for wrong in (b"", b"r" * 15, b"r" * 17):
        with pytest.raises(ValueError, match="16 bytes"):
            positions.run_id = wrong
    assert positions.run_id == b"r" * 16


def test_values_are_signed_64_bit_integers() -> None:
    with pytest.raises(OverflowError):
        Positions().wrote = 2**63


# ---- a shared page ----


def test_stores_are_seen_through_another_mapping(page: PositionsPage, path: Path) -> None:
    other = PositionsPage.open_readonly(path)
    page.positions.flushed = 12345
    assert other.positions.flushed == 12345
    other.close()


def test_a_page_for_reading_refuses_stores(page: PositionsPage, path: Path) -> None:
    reader = PositionsPage.open_readonly(path).positions
    assert not reader.writable
    with pytest.raises(io.UnsupportedOperation):
        reader.wrote = 1
    with pytest.raises(io.UnsupportedOperation):
        reader.run_id = bytes(16)
    with pytest.raises(io.UnsupportedOperation):
        reader.notify()
    with pytest.raises(io.UnsupportedOperation):
        Positions().publish_to(reader)


def test_a_page_needs_a_whole_page() -> None:
    with pytest.raises(ValueError, match="outside"):
        Positions.over(MappedFile.anonymous(0, PAGE_SIZE - 1))


def test_positions_keep_their_page_mapped(path: Path) -> None:
    gc.collect()
    before = mapped_files()
    page = PositionsPage.create(path)
    positions = page.positions
    page.close()
    del page
    assert mapped_files() == before + 1
    positions.wrote = 7
    assert positions.wrote == 7
    del positions
    assert mapped_files() == before


def test_publishing_copies_all_and_counts() -> None:
    private, shared = Positions(), Positions()
    for number, name in enumerate(NAMES, 1):
        setattr(private, name, number)
    shared.state = State.LIVE
    private.publish_to(shared)
    assert [getattr(shared, name) for name in NAMES] == [1, 2, 3, 4, 5, 6, 7]
    assert shared.changes == 1
    assert shared.state == State.LIVE


def test_a_child_cannot_store_to_the_parents_page(page: PositionsPage, in_child: Child) -> None:
    """D-35"""

    def child() -> None:
        with pytest.raises(Exception, match="forked child"):
            page.positions.wrote = 1

    in_child(child)
    assert page.positions.wrote == 0


def test_a_reader_never_sees_positions_in_the_wrong_order(
    page: PositionsPage, path: Path, in_child: Child
) -> None:
    """dispatched <= visible <= committed <= wrote, in another process, while everything moves."""
    stop = threading.Event()
    private = Positions()

    def move() -> None:
        end = 0
        while not stop.is_set():
            end += 100
            private.wrote = end
            private.committed = private.flushed = end - 1
            private.visible = end - 2
            private.dispatched = private.indexed = end - 3
            private.publish_to(page.positions)

    def child() -> None:
        seen = PositionsPage.open_readonly(path).positions
        wait_until(lambda: seen.wrote > 0)
        first = seen.wrote
        for _ in range(10_000):
            # One expression, evaluated from left to right.
            values = (seen.dispatched, seen.visible, seen.committed, seen.wrote)
            assert values == tuple(sorted(values)), values
        wait_until(lambda: seen.wrote > first)

    mover = threading.Thread(target=move, daemon=True)
    mover.start()
    try:
        in_child(child)
    finally:
        stop.set()
        mover.join()


# ---- waiting ----


def test_waiting_ends_at_once_when_something_changed(positions: Positions) -> None:
    positions.notify()
    assert positions.wait_change(0, 60_000) == 1


def test_waiting_ends_with_the_time(positions: Positions) -> None:
    before = time.monotonic()
    assert positions.wait_change(0, 20) == 0
    assert time.monotonic() - before >= 0.02
    assert positions.wait_change(0, -1) == 0


def test_a_publication_wakes_another_process(
    page: PositionsPage, path: Path, in_child: Child
) -> None:
    """The child maps the page for reading only and answers through the second page."""
    answers = PositionsPage.create(path.with_name("answers"))

    def step() -> None:
        for number in range(20):
            answers.positions.wait_change(number, 30_000)
            Positions().publish_to(page.positions)

    def child() -> None:
        own = PositionsPage.create(path.with_name("answers")).positions
        seen = PositionsPage.open_readonly(path).positions
        for number in range(20):
            assert seen.changes == number
            own.notify()
            assert seen.wait_change(number, 30_000) == number + 1

    stepper = threading.Thread(target=step, daemon=True)
    stepper.start()
    in_child(child)
    stepper.join()
    answers.close()


def test_waiting_serves_signals(page: PositionsPage) -> None:
    class Served(Exception):
        pass

    def serve(number: int, frame: object) -> None:
        raise Served

    before = signal.signal(signal.SIGALRM, serve)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(Served):
            page.positions.wait_change(0, 60_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
