"""Staged frames on their way into a log."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import NoReturn

import pytest

from rocketstore.spark.sink.journal import Staged
from rocketstore.spark.sink.staged_frames import read_chunks
from tests.spark.staged import stage_bodies
from tests.support.page_cache import drop, in_cache


@pytest.fixture
def staged(disk_path: Path, rng: random.Random) -> Staged:
    bodies = [rng.randbytes(64 << 10) for _ in range(64)]
    file = stage_bodies(disk_path, "1", bodies, chunk=4)
    if not drop(file.path):
        pytest.skip("a file system without a disk below its page cache")
    return file


def test_pages_of_what_is_appended_leave_the_cache(staged: Staged) -> None:
    assert sum(frames for _, frames in read_chunks([staged], give_back=True)) == staged.rows
    assert in_cache(staged.path) == 0


def test_frames_that_are_compared_stay_for_the_commit(staged: Staged) -> None:
    for _ in read_chunks([staged]):
        pass
    # Not all of them for certain: a machine short of memory takes some.
    assert in_cache(staged.path) > 0


def test_a_kernel_that_takes_no_advice(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = stage_bodies(tmp_path, "1", [rng.randbytes(100) for _ in range(8)], chunk=4)

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    assert sum(frames for _, frames in read_chunks([staged], give_back=True)) == staged.rows
