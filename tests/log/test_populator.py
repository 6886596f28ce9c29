"""Pages ahead of the writer of an os store."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rocketstore import Store
from rocketstore._native.mapped_file import MappedFile
from rocketstore._native.positions import Positions
from rocketstore.log.populator import STEP_BYTES, Populator
from tests.small_store import log_bytes, open_still, parts

SIZE = 16 * STEP_BYTES


def populator(
    positions: Positions, file: MappedFile, window_bytes: int, spare: MappedFile | None = None
) -> Populator:
    def find(offset: int) -> MappedFile | None:
        return file if file.start_offset <= offset < file.end_offset else None

    return Populator(positions, find, lambda: spare, lambda _: None, window_bytes=window_bytes)


def run(service: Populator) -> None:
    """As many steps as there is work for, beside a writer that is slow or fast."""
    while service.step() is not None:
        pass


def test_slices_ahead_of_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """S004-53 S004-55 K-48: as far as the window says, in slices, not the whole file at once."""
    monkeypatch.setattr("rocketstore.log.populator.RATE_S", math.inf)  # no writer is fast
    file = MappedFile.anonymous(0, SIZE)
    positions = Positions()
    service = populator(positions, file, 4 * STEP_BYTES)
    run(service)
    assert service.populated == 0  # a store that is not written dirties no page
    positions.wrote = 6 * STEP_BYTES
    assert service.step() == 0
    assert 6 * STEP_BYTES < service.populated <= 7 * STEP_BYTES  # one slice a step
    run(service)
    assert service.populated == 10 * STEP_BYTES
    run(service)
    assert service.populated == 10 * STEP_BYTES


def test_content_stays(tmp_path: Path) -> None:
    """S004-54: pages are there, and what the writer put meanwhile is untouched."""
    file = MappedFile.anonymous(0, SIZE)
    file.write(7 * STEP_BYTES, b"the writer was here first")
    positions = Positions()
    service = populator(positions, file, 8 * STEP_BYTES)
    positions.wrote = 6 * STEP_BYTES
    run(service)
    assert service.populated > 8 * STEP_BYTES
    assert file.read(7 * STEP_BYTES, 25) == b"the writer was here first"
    assert not any(file.read(8 * STEP_BYTES, 4096))


def test_follows_a_fast_writer_in_large_pages() -> None:
    """K-48: beside it in one call, from the first large page that the writer has not begun."""
    file = MappedFile.anonymous(0, SIZE)
    positions = Positions()
    service = populator(positions, file, 4 * STEP_BYTES)
    service._hurried = True  # as a rate of more than 64 MiB a second makes it
    positions.wrote = 6 * STEP_BYTES
    assert service.step() == 0
    assert service.populated == 10 * STEP_BYTES
    positions.wrote = 11 * STEP_BYTES + 1
    assert service.step() == 0
    assert service.populated == SIZE
    assert service.step() is None


def test_head_of_the_next_segment() -> None:
    file, spare = MappedFile.anonymous(0, SIZE), MappedFile.anonymous(SIZE, SIZE)
    positions = Positions()
    service = populator(positions, file, 4 * STEP_BYTES, spare)
    positions.wrote = SIZE - STEP_BYTES
    run(service)
    assert SIZE + 3 * STEP_BYTES <= service.populated <= SIZE + 4 * STEP_BYTES


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
