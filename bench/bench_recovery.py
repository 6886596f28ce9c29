"""Opening a store: after a clean stop, after a kill, and with its queues and index to rebuild."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from bench.conftest import TOPIC, OpenStore, fill, note

COUNT = 100_000
SIZE = 1024

WRITER = """
import sys, rocketstore
store = rocketstore.open(sys.argv[1], durability="os", commit_log_file_size_bytes=1 << 26,
                         flush_interval_ms=86_400_000)
writer = store.writer("bench", queue_id=0)
for _ in range(100):
    writer.put_batch([bytes(1024)] * 1000)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 100,000 messages of 1 KiB whose writer was killed before its log was flushed."""
    path = tmp_path_factory.mktemp("recovery") / "store"
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        os.kill(child.pid, signal.SIGKILL)
    return path


def open_and_close(path: Path) -> int:
    with rocketstore.open(path, "r+", durability="os") as store:
        return store.max_queue_offset(TOPIC, 0)


def test_open_after_a_clean_stop(benchmark: Any, open_store: OpenStore, tmp_path: Path) -> None:
    with open_store() as store:
        fill(store, COUNT, SIZE)
    note(benchmark, SIZE, 0, "os")
    run = benchmark.pedantic(open_and_close, args=(tmp_path / "store",), rounds=20)
    assert run == COUNT


def test_open_after_a_kill(benchmark: Any, killed: Path, tmp_path: Path) -> None:
    note(benchmark, SIZE, 0, "os")
    copy = tmp_path / "copy"

    def prepare() -> tuple[tuple[Path], dict[str, Any]]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(killed, copy)
        return (copy,), {}

    assert benchmark.pedantic(open_and_close, setup=prepare, rounds=5) == COUNT


def test_open_without_queues_and_index(benchmark: Any, killed: Path, tmp_path: Path) -> None:
    note(benchmark, SIZE, 0, "os")
    copy = tmp_path / "copy"

    def prepare() -> tuple[tuple[Path], dict[str, Any]]:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(killed, copy)
        shutil.rmtree(copy / "consumequeue", ignore_errors=True)
        shutil.rmtree(copy / "index", ignore_errors=True)
        return (copy,), {}

    assert benchmark.pedantic(open_and_close, setup=prepare, rounds=5) == COUNT
