"""Zeros of a prewritten file, and who has the disk meanwhile."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.positions import Positions
from rocketstore.log.mapped_files.mapped_files import MappedFiles
from rocketstore.log.mapped_files.segment_blocks import SegmentBlocks
from tests.support.disk_calls import disk_calls
from tests.unit.conftest import probe

__all__ = ["probe"]

pytestmark = pytest.mark.quick

KIB = 1024
SIZE = 600 * KIB  # two pieces and a part of one
START = 10 * SIZE


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "commitlog").mkdir()
    fd = os.open(tmp_path / "commitlog" / "new", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def prewrite(fd: int, used: int) -> None:
    """`used`: bytes of the file before that the log has used."""
    files, positions = MappedFiles("commit log", SIZE), Positions()
    files.publish(MappedFile.anonymous(START - SIZE, SIZE))
    positions.wrote = START - SIZE + used
    blocks = SegmentBlocks(files, positions, stepwise=False, max_wait_ms=1)
    assert blocks.begin_written(fd, SIZE) == SIZE


def written(fd: int) -> bool:
    return os.pread(fd, SIZE + 1, 0) == bytes(SIZE) and os.lseek(fd, 0, os.SEEK_HOLE) == SIZE


@pytest.mark.parametrize(
    ("used", "syncs"),
    [(0, 3), (256 * KIB, 2), (512 * KIB, 1), (SIZE, 0), (2 * SIZE, 0)],
)
def test_pieces_are_synced_while_there_is_time(fd: int, used: int, syncs: int) -> None:
    """D-11 a. Time there is while more is done than the log has used of the file before."""
    with disk_calls() as calls:
        prewrite(fd, used)
        assert calls.made.count("fdatasync") == syncs
    assert written(fd)


@pytest.mark.parametrize("name", ["pwrite", "fdatasync"])
def test_errors(fd: int, probe: Any, name: str) -> None:
    probe.fail(name, errno.EINTR, times=3)
    prewrite(fd, 0)
    assert written(fd)
    probe.fail(name, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        prewrite(fd, 0)
