"""Consume queue units, byte for byte, and the files they stand in."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format import queue_file
from rocketstore._native.os.mapped_file import MappedFile
from tests.support import paths
from tests.support.forking import fork

VECTORS = paths.VECTORS / "vectors.json"
ENTRIES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["queue"]["entries"]
UNIT = queue_file.UNIT_SIZE


def file_of(units: int) -> MappedFile:
    return MappedFile.anonymous(0, units * UNIT)


@pytest.mark.parametrize("row", ENTRIES, ids=lambda row: row["note"])
def test_units_are_rocketmqs(row: dict[str, Any]) -> None:
    """S000-11: physical offset, size, tags code, as RocketMQ writes them."""
    file = file_of(3)
    queue_file.write_unit(file, 1, *row["fields"])
    assert file.read(UNIT, UNIT).hex() == row["hex"]
    assert queue_file.read_unit(file, 1) == tuple(row["fields"])
    assert file.read(0, UNIT) == file.read(2 * UNIT, UNIT) == bytes(UNIT)


def test_the_first_unit_that_is_not_written_ends_the_queue() -> None:
    file = file_of(8)
    for unit in (0, 1, 2, 5):
        queue_file.write_unit(file, unit, 100 * unit, 100, 0)
    assert queue_file.written_units(file) == 3
    assert queue_file.read_unit(file, 3) is None


def test_pre_blanks_count_as_written_but_are_no_messages() -> None:
    file = file_of(8)
    queue_file.fill_pre_blank(file, 0, 3)
    assert queue_file.read_unit(file, 2) == queue_file.PRE_BLANK
    assert queue_file.written_units(file) == 3
    assert queue_file.physical_end(file, 3) == -1
    queue_file.write_unit(file, 3, 0, 77, 0)
    assert queue_file.first_kept(file, 0, 4, 0) == 3
    assert queue_file.physical_end(file, 4) == 77


def test_a_cut_clears_units_and_whatever_stands_behind_them() -> None:
    file = file_of(8)
    for unit in range(4):
        queue_file.write_unit(file, unit, 100 * unit, 100, 5)
    queue_file.write_unit(file, 6, 50, 100, 5)  # left over from an earlier life
    assert queue_file.cut(file, 200) == 2
    assert queue_file.written_units(file) == 2
    assert file.find_data(2 * UNIT, file.size) == file.size


def test_units_as_an_array_pin_the_file() -> None:
    file = file_of(4)
    queue_file.write_unit(file, 2, 300, 40, -7)
    units = queue_file.units_array(file, 1, 3)
    file.close()
    assert units["physical_offset"].tolist() == [0, 300, 0]
    assert (int(units[1]["size"]), int(units[1]["tags_code"])) == (40, -7)


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 5), (4, 1), (2, 2**62)])
def test_units_outside_the_file_are_refused(first: int, count: int) -> None:
    with pytest.raises(ValueError, match="units"):
        queue_file.units_array(file_of(4), first, count)


def test_a_unit_that_another_process_writes_is_whole_or_not_there(tmp_path: Path) -> None:
    """A reader beside a writer sees no size without the offset that goes with it: some hundred of these units were
    read with offset 0."""
    count = 1_000_000
    path = tmp_path / "0"
    with path.open("wb") as file:
        file.truncate(count * UNIT)
    written = MappedFile.open(path, 0, count * UNIT, "write")
    written.populate(0, count * UNIT)
    read = MappedFile.open(path, 0, count * UNIT, "read")
    child = fork()
    if child == 0:
        try:
            for unit in range(count):
                for _ in range(40):  # slower than who reads, who then meets units half-written
                    pass
                queue_file.write_unit(written, unit, unit * 100 + 7, 50, unit * 3 + 1)
        finally:
            os._exit(0)
    torn = []
    deadline = time.monotonic() + 120
    try:
        for unit in range(count):
            while (found := queue_file.read_unit(read, unit)) is None:
                assert time.monotonic() < deadline, f"unit {unit} does not come"
            if found != (unit * 100 + 7, 50, unit * 3 + 1):
                torn.append(found)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert torn == []
