"""Columns of a log in the page cache, against a reader of `struct` and `zlib.crc32` in the same run.

    python -m pytest -q -s bench/bench_columns.py

A log of 1 GiB in one segment; 100 B and 1 KiB; both checksums unless said; as many threads as `scan` takes by
itself: one where bodies are copied, else one for each processor. Rates are millions of messages a second, medians of
five rounds in which all cases take turns; the ratio is to the plain reader, which reads the first part of the log.
"""

from __future__ import annotations

import mmap
import statistics
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from bench.conftest import SIZES, OpenStore, fill

LOG_BYTES = (1 << 30) - (1 << 20)
#: Bytes of a record beyond its body, here.
FRAME_BYTES = 128
PLAIN_ROWS = 100_000
ROUNDS = 5
HEAD = struct.Struct(">iIIiiqqiq")
PLAIN = "struct + zlib.crc32"
NARROW = ["topic", "queue_id"]


def plain(path: Path, most: int) -> int:
    """What one writes without a library: headers by `struct`, body checksums by zlib."""
    rows = 0
    for segment in sorted((path / "commitlog").iterdir()):
        with segment.open("rb") as file:
            data, at = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), 0
        while at + 91 < len(data) and rows < most:
            size, magic, crc, *_ = HEAD.unpack_from(data, at)
            if magic != 0xDAA320A7:
                break
            (length,) = struct.unpack_from(">i", data, at + 84)
            body = data[at + 88 : at + 88 + length]
            assert zlib.crc32(body) & 0x7FFFFFFF == crc
            rows += 1
            at += size
    return rows


def rows_of(path: Path, columns: list[str] | None, verify: bool = True) -> int:
    return sum(chunk.rows for chunk in rocketstore.scan(path, columns=columns, verify=verify))


@pytest.mark.parametrize("size", SIZES)
def test_columns(open_store: OpenStore, tmp_path: Path, size: int) -> None:
    count = LOG_BYTES // (size + FRAME_BYTES)
    with open_store() as store:
        fill(store, count, size)
    path = tmp_path / "store"
    cases: dict[str, Callable[[], int]] = {
        PLAIN: lambda: plain(path, PLAIN_ROWS),
        "body": lambda: rows_of(path, ["body"]),
        "body in the file": lambda: rows_of(path, ["body_view"]),
        "topic, queue_id": lambda: rows_of(path, NARROW),
        "topic, queue_id, no checksum": lambda: rows_of(path, NARROW, verify=False),
        "all": lambda: rows_of(path, None),
    }
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, run in cases.items():
            started = time.perf_counter()
            rows = run()
            seconds[name].append((time.perf_counter() - started) / rows)
            assert rows == (PLAIN_ROWS if name == PLAIN else count)
    least = statistics.median(seconds[PLAIN])
    print(f"\n{size} B, {count} messages")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"  {name:30} {1e-6 / median:6.2f} M/s  {least / median:6.1f} x")
