"""RocketMQ's checkpoint: its own bytes, any length, and what the times promise (format 8)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from rocketstore.log.commitlog.checkpoint import RocketmqCheckpoint, RocketmqTimes
from tests.support import paths

pytestmark = pytest.mark.quick

VECTORS: list[dict[str, Any]] = json.loads((paths.VECTORS / "vectors.json").read_text())[
    "checkpoints"
]


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: row["written_by"])
def test_rocketmqs_bytes_are_read_and_written(row: dict[str, Any], tmp_path: Path) -> None:
    """S001-55 S001-58: the times of format 8, and what they say about the log."""
    path = tmp_path / "checkpoint"
    data = bytes.fromhex(row["hex"]).ljust(row["size"], b"\0")
    path.write_bytes(data)
    file = RocketmqCheckpoint(path)
    times = file.load()
    assert times == (*row["values"], 0, 0, 0)[:6]
    assert times.minimum_ms == row["min_timestamp"]
    path.unlink()
    file.store(times)
    file.close()
    assert path.read_bytes() == data


def test_a_missing_file_is_all_zeros_and_is_not_made(tmp_path: Path) -> None:
    file = RocketmqCheckpoint(tmp_path / "checkpoint")
    assert file.load() == (0, 0, 0, 0, 0, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [0, 1, 12, 39, 40, 41, 47, 48, 49, 4095, 4096, 5000])
def test_any_length_is_read_and_unknown_bytes_stay(tmp_path: Path, size: int) -> None:
    path = tmp_path / "checkpoint"
    data = bytes((n * 7 + 1) % 256 for n in range(size))
    path.write_bytes(data)
    file = RocketmqCheckpoint(path)
    assert file.load() == struct.unpack(">6q", data[:48].ljust(48, b"\0"))
    file.store(RocketmqTimes(1, 2, 3, 4, -5, 6))
    assert file.load() == (1, 2, 3, 4, -5, 6)
    file.store(RocketmqTimes(9, 8, 7, 6, 5, 4))
    file.close()
    wanted = struct.pack(">6q", 9, 8, 7, 6, 5, 4) + data[48:]
    assert path.read_bytes() == wanted.ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("times", "least"),
    [
        ((0, 0, 0), 0),
        ((2999, 5000, 9), 0),
        ((5000, 4000, 999), 1000),
        ((-1, 9, 9), 0),
    ],
)
def test_what_the_times_promise(times: tuple[int, int, int], least: int) -> None:
    assert RocketmqTimes(*times, 0, 0).minimum_ms == least
