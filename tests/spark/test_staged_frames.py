"""Staged frames on their way into a log."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rocketstore.spark.journal import Staged
from rocketstore.spark.staged_frames import read_chunks
from tests.spark.staged import stage_bodies


def in_cache(path: str, size: int) -> int:
    """Pages of a file that are read without its disk."""
    handle = os.open(path, os.O_RDONLY)
    page, found = bytearray(1), 0
    try:
        # Page by page: one that is asked for here does not bring its neighbours.
        for position in range(0, size, 4096):
            try:
                found += os.preadv(handle, [page], position, os.RWF_NOWAIT)
            except BlockingIOError:
                continue
    finally:
        os.close(handle)
    return found


@pytest.fixture
def staged(tmp_path: Path, rng: random.Random) -> Staged:
    bodies = [rng.randbytes(64 << 10) for _ in range(64)]
    file = stage_bodies(tmp_path, "1", bodies, chunk=4)
    handle = os.open(file.path, os.O_RDONLY)
    os.fsync(handle)
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(handle)
    if in_cache(file.path, file.size):
        pytest.skip("a file system without a disk below its page cache, as tmpfs")
    return file


def test_pages_of_what_is_appended_leave_the_cache(staged: Staged) -> None:
    assert sum(frames for _, frames in read_chunks([staged], give_back=True)) == staged.rows
    assert in_cache(staged.path, staged.size) == 0


def test_frames_that_are_compared_stay_for_the_commit(staged: Staged) -> None:
    for _ in read_chunks([staged]):
        pass
    # Not all of them for certain: a machine short of memory takes some.
    assert in_cache(staged.path, staged.size) > 0
