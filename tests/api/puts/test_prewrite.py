"""Segments that are written once before they are used."""

from __future__ import annotations

import os
from pathlib import Path

import rocketstore
from tests.support.waiting import wait_until

SIZE = 1 << 16


def blocks_with_data(path: Path) -> int:
    """Bytes in front of the first hole; an extent that was never written counts as a hole."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_HOLE)
    finally:
        os.close(fd)


def test_a_prewritten_segment_has_all_its_blocks_written(tmp_path: Path) -> None:
    """D-11 (a): zeros are written before the segment has its name."""
    with rocketstore.open(
        tmp_path / "s", commit_log_file_size_bytes=SIZE, prewrite=True, index_enabled=False
    ) as store:
        store.writer("orders").put(b"x")
        segment = tmp_path / "s" / "commitlog" / f"{0:020d}"
        assert blocks_with_data(segment) == SIZE
        assert next(iter(store.consumer("orders"))).body == b"x"


def test_the_next_segment_is_made_from_the_beginning_on(tmp_path: Path) -> None:
    """Its zeros are written in pieces, with rests: they get the time in which the whole segment before is filled."""
    with rocketstore.open(
        tmp_path / "s", commit_log_file_size_bytes=SIZE, prewrite=True, index_enabled=False
    ) as store:
        writer = store.writer("orders")
        while store.end_offset < SIZE + SIZE // 4:
            writer.put(bytes(1000))
        third = tmp_path / "s" / "commitlog" / f"{2 * SIZE:020d}"
        wait_until(third.exists)
        assert blocks_with_data(third) == SIZE
