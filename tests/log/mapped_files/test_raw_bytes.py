"""Bytes of another log: written to the file by calls, whatever their size, and read as if they had been stored."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store, StoreFailedError, tools
from rocketstore._native.append.raw_append import append_raw
from tests.support.disk_calls import disk_calls
from tests.support.small_store import everything, open_small, open_still, parts, segments

SIZE = 1 << 20
OPTIONS: dict[str, Any] = {
    "commit_log_file_size_bytes": SIZE,
    "consume_queue_file_size_bytes": 200_000,
}


def a_log(path: Path, rng: random.Random) -> tuple[list[bytes], bytes, list[int]]:
    """Bodies, the bytes of a log with them, and where its records and blanks end."""
    bodies = [rng.randbytes(rng.randrange(1, 40_000)) for _ in range(90)]
    ends: list[int] = []
    with open_small(path, durability="os", **OPTIONS) as store:
        for body in bodies:
            result = store.writer("orders", queue_id=0).put(body)
            if ends and result.physical_offset > ends[-1]:
                ends.append(result.physical_offset)
            ends.append(result.end_offset)
        store.flush()
        data = b"".join(one.read_bytes() for one in segments(path))
    return bodies, data[: ends[-1]], ends


def opened(path: Path) -> Store:
    """With no thread that makes pages ready."""
    store = open_still(path, "os", **OPTIONS)
    populator = parts(store).populator
    assert populator.stop(60)
    return store


def pieces(data: bytes, ends: list[int], rng: random.Random) -> list[tuple[int, bytes]]:
    """Whole records, of one segment each: many at once, and one at a time."""
    found, begin = [], 0
    for end in ends:
        border = end % SIZE == 0
        if border or rng.random() < 0.4 or end == ends[-1]:
            found.append((begin, data[begin:end]))
            begin = end
    return found


def test_they_are_written(tmp_path: Path, rng: random.Random) -> None:
    bodies, data, ends = a_log(tmp_path / "from", rng)
    with opened(tmp_path / "to") as store, disk_calls() as calls:
        log = parts(store).commit_log.log
        for offset, piece in pieces(data, ends, rng):
            calls.made.clear()
            append_raw(log, offset, piece)
            within_a_page = offset % 4096 + len(piece) <= 4096
            assert calls.made.count("pwrite") == (1 if within_a_page else 2)
        assert [bytes(one.body) for one in everything(store)] == bodies
    written = b"".join(one.read_bytes() for one in segments(tmp_path / "to"))
    assert written[: len(data)] == data
    assert tools.verify(tmp_path / "to").ok
    with opened(tmp_path / "to") as store:
        assert store.recovery.mode == "clean"
        assert [bytes(one.body) for one in everything(store)] == bodies


def test_pages_that_are_ready_are_stored_to(tmp_path: Path, rng: random.Random) -> None:
    bodies, data, ends = a_log(tmp_path / "from", rng)
    with opened(tmp_path / "to") as store, disk_calls() as calls:
        log = parts(store).commit_log.log
        assert log.through is not None
        log.through.pages.skip_to(4 * SIZE)
        for offset, piece in pieces(data, ends, rng):
            append_raw(log, offset, piece)
        assert "pwrite" not in calls.made
        assert [bytes(one.body) for one in everything(store)] == bodies


@pytest.mark.parametrize("good", [0, 1, 2], ids=["at once", "after a call", "after a piece"])
def test_a_write_that_fails(tmp_path: Path, rng: random.Random, good: int) -> None:
    """The store says why, and takes no more; opened again it has whole records only."""
    bodies, data, ends = a_log(tmp_path / "from", rng)
    left = [good]
    store = opened(tmp_path / "to")
    log = parts(store).commit_log.log
    first, second = ends[10], ends[20]

    def fail() -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, "full")
        left[0] -= 1

    with disk_calls() as calls:
        append_raw(log, 0, data[:first])
        calls.before["pwrite"] = fail
        with pytest.raises(StoreFailedError, match="No space"):
            append_raw(log, first, data[first:second])
            append_raw(log, second, data[second : ends[25]])
        with pytest.raises(StoreFailedError, match="No space"):
            append_raw(log, second, data[second : ends[25]])
        had = bodies[: 11 if good < 2 else 21]
        assert [bytes(one.body) for one in everything(store)] == had
        store.close()
    with opened(tmp_path / "to") as store:
        assert [bytes(one.body) for one in everything(store)] == had
