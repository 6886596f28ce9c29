"""`_native.populating`: how far pages are made ready beside a fast writer."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.mapped_file import MappedFile
from rocketstore._native.populating import populate_ahead
from rocketstore._native.positions import Positions
from rocketstore.errors import StoreClosedError

pytestmark = pytest.mark.quick

MIB = 1 << 20
START = 64 * MIB
SIZE = 15 * MIB


@pytest.fixture
def file() -> MappedFile:
    return MappedFile.anonymous(START, SIZE)


def at(wrote: int) -> Positions:
    positions = Positions()
    positions.wrote = wrote
    return positions


@pytest.mark.parametrize(
    ("wrote", "populated", "window", "reached"),
    [
        (60, 64, 6, 66),  # the writer is in the file before
        (64, 64, 4, 68),
        (69, 64, 6, 76),  # the large page that it stands in is its own
        (69, 69, 6, 76),
        (68, 71, 4, 72),  # up to a border
        (68, 72, 4, 72),  # all is ready
        (70, 64, 32, 79),  # the end of the file
        (79, 70, 32, 79),
        (90, 64, 4, 79),  # the writer is in the file behind
    ],
)
def test_how_far(file: MappedFile, wrote: int, populated: int, window: int, reached: int) -> None:
    file.write(9 * MIB, b"the writer was here first")
    found = populate_ahead(file, at(wrote * MIB), populated * MIB, window * MIB)
    assert found == reached * MIB
    assert file.read(9 * MIB, 25) == b"the writer was here first"
    assert not any(file.read(10 * MIB, 4096))


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EAGAIN, errno.EINTR])
def test_goes_on(file: MappedFile, probe: Any, error: int) -> None:
    """D-39: EINVAL is a kernel without the advice, which touches the pages instead."""
    probe.fail("madvise", error)
    assert populate_ahead(file, at(START), START, 6 * MIB) == START + 6 * MIB
    assert probe.calls_made() == (2 if error == errno.EINVAL else 3)


def test_tells_that_there_is_no_room(file: MappedFile, probe: Any) -> None:
    probe.fail("madvise", errno.EFAULT)
    with pytest.raises(OSError, match="Bad address"):
        populate_ahead(file, at(START), START, 6 * MIB)


def test_what_it_refuses(file: MappedFile, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outside"):
        populate_ahead(file, at(START), START - 1, MIB)
    file.close()
    with pytest.raises(StoreClosedError):
        populate_ahead(file, at(START), START, MIB)
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(4096))
    with pytest.raises(OSError, match="reading only"):
        populate_ahead(MappedFile.open(path, 0, 4096, "read"), at(0), 0, MIB)
