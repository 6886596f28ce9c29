"""Writes that move less than asked, and calls that a signal breaks off, are finished."""

from __future__ import annotations

import errno
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.process.other_process import open_small


def fill(path: Path, durability: str) -> None:
    with open_small(path, durability=durability) as store:
        writer = store.writer("Orders")
        for number in range(200):
            writer.put(b"%d:" % number + bytes(number * 13 % 700), keys=f"k{number}")
        store.wait_flushed(store.end_offset)


def check(path: Path) -> None:
    with open_small(path) as store:
        assert store.recovery.mode == "clean"
        bodies = [bytes(message.body) for message in store.consumer("Orders")]
        assert bodies == [b"%d:" % n + bytes(n * 13 % 700) for n in range(200)]
        assert len(store.query("Orders", "k199")) == 1


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.parametrize("at_most", [1, 100, 4096])
def test_short_writes(tmp_path: Path, probe: Any, durability: str, at_most: int) -> None:
    """D-10: a short count is no error and no success: the rest is written by the next call."""
    probe.fail("pwrite", 0, times=0, at_most=at_most)
    fill(tmp_path, durability)
    assert probe.calls_made() > 0
    probe.restore()
    check(tmp_path)


@pytest.mark.parametrize(
    ("durability", "call"),
    [
        ("disk", "pwritev2"),
        ("disk", "pwrite"),
        ("memory", "fdatasync"),
        ("memory", "pwrite"),
        ("os", "msync"),
        ("os", "mmap"),
    ],
)
def test_calls_that_a_signal_breaks_off(
    tmp_path: Path, probe: Any, durability: str, call: str
) -> None:
    """D-10 D-33: EINTR is tried again, also when a signal's handler ran in between."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        probe.fail(call, errno.EINTR, times=5, with_signal=signal.SIGUSR1)
        fill(tmp_path, durability)
        assert probe.calls_made() >= 5
    finally:
        probe.restore()
        signal.signal(signal.SIGUSR1, before)
    assert heard
    check(tmp_path)


def test_a_file_system_without_durable_writes(tmp_path: Path, probe: Any) -> None:
    """D-39: without RWF_DSYNC a write and an fdatasync keep the same promise."""
    probe.fail("pwritev2", errno.EOPNOTSUPP, times=-1)
    fill(tmp_path, "disk")
    assert probe.calls_made() > 0
    probe.restore()
    check(tmp_path)
