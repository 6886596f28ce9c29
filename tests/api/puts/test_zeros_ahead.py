"""Zeros that small flushes of a `disk` store bring along, so that the next ones overwrite blocks."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.engine import wiring
from rocketstore.log.layout.file_system import FileSystem
from tests.api.puts.test_prewrite import blocks_with_data

PAGE = 4096
AHEAD = 512 << 10
SIZE = 4 << 20


def segment(path: Path, offset: int = 0) -> Path:
    return path / "commitlog" / f"{offset:020d}"


def open_large(path: Path, **options: Any) -> rocketstore.Store:
    return rocketstore.open(path, commit_log_file_size_bytes=SIZE, index_enabled=False, **options)


@pytest.fixture
def holes(tmp_path: Path) -> None:
    """What was allocated and never written can be told."""
    probe = tmp_path / "probe"
    with probe.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, PAGE)
    found = blocks_with_data(probe)
    probe.unlink()
    if found:
        pytest.skip("the file system does not tell which blocks were never written")


@pytest.mark.usefixtures("holes")
def test_a_small_flush_writes_blocks_for_the_next(tmp_path: Path) -> None:
    """D-11: the puts behind it come to blocks that were written, up to the end of the zeros."""
    with open_large(tmp_path) as store:
        writer = store.writer("t")
        writer.put(b"x")
        first = blocks_with_data(segment(tmp_path))
        assert first == AHEAD
        while store.end_offset < first - 5000:
            writer.put(bytes(3000))
            assert blocks_with_data(segment(tmp_path)) == first
        while store.end_offset <= first:
            writer.put(bytes(3000))
        end = store.end_offset // PAGE * PAGE
        assert blocks_with_data(segment(tmp_path)) == end + AHEAD


@pytest.mark.usefixtures("holes")
def test_a_large_flush_brings_none(tmp_path: Path) -> None:
    with open_large(tmp_path) as store:
        store.writer("t").put_batch([bytes(1000)] * 400)
        assert blocks_with_data(segment(tmp_path)) == -(-store.end_offset // PAGE) * PAGE


@pytest.mark.usefixtures("holes")
@pytest.mark.parametrize("prewrite", [False, True])
def test_none_where_they_would_be_of_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prewrite: bool
) -> None:
    """Where each write goes to new blocks they would be written for nothing; where a file was prewritten, too."""
    if not prewrite:
        monkeypatch.setattr(wiring, "file_system", lambda _: FileSystem("cow", False))
    with open_large(tmp_path, prewrite=prewrite) as store:
        store.writer("t").put(b"x")
        assert blocks_with_data(segment(tmp_path)) == (SIZE if prewrite else PAGE)


def test_zeros_end_with_the_file(tmp_path: Path, store: rocketstore.Store) -> None:
    writer = store.writer("t")
    for _ in range(20):
        writer.put(bytes(1000))
    for offset in range(0, store.end_offset, PAGE):
        assert segment(tmp_path, offset).stat().st_size == PAGE
    assert len(list(store.consumer("t"))) == 20


@pytest.mark.parametrize("threads", [1, 8])
def test_nothing_is_lost_to_zeros(tmp_path: Path, rng: random.Random, threads: int) -> None:
    """Messages of all sizes, also batches that bring no zeros, over several windows and segments."""
    sizes = [[rng.choice([1, 100, 1000, 5000, 60_000]) for _ in range(400)] for _ in range(threads)]
    with open_large(tmp_path) as store:

        def work(number: int) -> None:
            writer = store.writer("t", queue_id=number)
            for at, size in enumerate(sizes[number]):
                body = b"%d:%d:" % (number, at) + b"y" * size
                if size == 60_000 and at % 3 == 0:
                    writer.put_batch([body] * 6)
                else:
                    writer.put(body)

        workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        end = store.end_offset
    with rocketstore.open(tmp_path, "r") as store:
        assert store.end_offset == end > SIZE
        for number in range(threads):
            expected = []
            for at, size in enumerate(sizes[number]):
                body = b"%d:%d:" % (number, at) + b"y" * size
                expected += [body] * (6 if size == 60_000 and at % 3 == 0 else 1)
            assert [m.body for m in store.consumer("t", queue_id=number)] == expected
