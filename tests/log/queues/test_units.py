"""What the files of a queue hold, told without mapping them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy
import pytest

from rocketstore.log.layout import listing
from rocketstore.log.layout.listing import list_files
from rocketstore.log.layout.paths import parse_segment_name, segment_name
from rocketstore.log.queues import units as queue_units
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE, has_units_up_to
from tests.support.small_store import watched

UNIT = numpy.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
FILE_UNITS = 10
FILE_SIZE = FILE_UNITS * UNIT_SIZE


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """Two files; the second has three units, the first of them a pre-blank."""
    units = numpy.zeros(2 * FILE_UNITS, UNIT)
    units["physical_offset"][:13] = numpy.arange(13) * 100
    units["size"][:13] = 100
    units[10] = (0, PRE_BLANK_SIZE, 0)
    for start in (0, FILE_UNITS):
        path = tmp_path / f"{start * UNIT_SIZE:020d}"
        path.write_bytes(units[start : start + FILE_UNITS].tobytes())
    return tmp_path


@pytest.mark.parametrize("end", [1, 5, 10, 11, 13])
def test_units_that_are_there(queue: Path, end: int) -> None:
    assert has_units_up_to(queue, FILE_SIZE, end)


@pytest.mark.parametrize("end", [14, 20, 21, 35])
def test_units_that_are_not(queue: Path, end: int) -> None:
    assert not has_units_up_to(queue, FILE_SIZE, end)


@pytest.mark.parametrize("lost", [10, 11, 12])
@pytest.mark.parametrize("field", ["physical_offset", "size"])
def test_a_hole_in_front_of_the_end(queue: Path, lost: int, field: str) -> None:
    path = queue / f"{FILE_SIZE:020d}"
    units = numpy.frombuffer(path.read_bytes(), UNIT).copy()
    units[field][lost - FILE_UNITS] = -1 if field == "physical_offset" else 0
    path.write_bytes(units.tobytes())
    assert not has_units_up_to(queue, FILE_SIZE, 13)


def test_a_file_that_was_cut(queue: Path) -> None:
    os.truncate(queue / f"{FILE_SIZE:020d}", 2 * UNIT_SIZE + 19)
    assert has_units_up_to(queue, FILE_SIZE, 12)
    assert not has_units_up_to(queue, FILE_SIZE, 13)


def test_many_are_not_read(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_units, "READ_BYTES_MAX", 5 * UNIT_SIZE)
    assert has_units_up_to(queue, FILE_SIZE, 5)
    assert not has_units_up_to(queue, FILE_SIZE, 6)


@pytest.mark.parametrize("call", ["open", "pread"])
def test_what_cannot_be_read_is_not_known(
    queue: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    calls = watched(monkeypatch, queue_units)
    calls.errors[call] = OSError(errno.EIO, "bad block")
    assert not has_units_up_to(queue, FILE_SIZE, 5)
    assert ("close" in calls.made) == (call == "pread")


def test_a_file_that_goes_while_its_directory_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a writer that trims: the others are there all the same."""
    for start in (0, 200, 400):
        (tmp_path / segment_name(start)).write_bytes(bytes(200))

    def removed_meanwhile(name: str) -> int | None:
        if name == segment_name(0):
            (tmp_path / name).unlink()
        return parse_segment_name(name)

    monkeypatch.setattr(listing, "parse_segment_name", removed_meanwhile)
    assert list_files(tmp_path) == [(200, 200), (400, 200)]
    assert list_files(tmp_path / "nothing") == []
