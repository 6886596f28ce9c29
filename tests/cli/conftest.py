"""The command line in this process and in processes of its own, and a small store to look into."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore

pytest.importorskip("click")
pytest.importorskip("rich")

from click.testing import CliRunner, Result

from rocketstore.cli.app import cli

Invoke = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]

#: Small files, made quickly, and many of them.
SMALL = {"commit_log_file_size_bytes": 1 << 20, "index_slots": 100, "index_entries": 1000}


@pytest.fixture
def invoke() -> Invoke:
    """Runs the command line in this process; every argument is turned into text."""

    def run(*words: object, **options: Any) -> Result:
        return CliRunner().invoke(cli, [str(word) for word in words], **options)

    return run


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the command line as a process of its own; kills it at the end of the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: object, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rocketstore.cli", *map(str, words)]
        options = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": {**os.environ, "PYTHONUNBUFFERED": "1"},
            **options,
        }
        # A test run in the background ignores Ctrl-C, and its children would, too.
        options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        child = subprocess.Popen(command, **options)
        started.append(child)
        return child

    yield run
    for child in started:
        child.kill()
        child.communicate()


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """A closed store: topic `orders` with 20 messages in queue 0 and 10 in queue 1, `other` with one."""
    path = tmp_path / "store"
    with rocketstore.open(path, durability="os", **SMALL) as store:
        first = store.writer("orders", queue_id=0)
        second = store.writer("orders", queue_id=1)
        for number in range(20):
            first.put(
                b"first %d" % number, tags="even" if number % 2 == 0 else "odd", keys=f"o-{number}"
            )
            if number % 2:
                second.put(b"second %d" % (number // 2), keys="second")
        store.writer("other").put(b"\x1b[31mred\xff", properties={"region": "eu"})
    return path


@pytest.fixture
def long_path(store_path: Path) -> Path:
    """The store with two and a half segments."""
    with rocketstore.open(store_path, "r+") as store:
        writer = store.writer("orders")
        while store.end_offset < 5 << 19:
            writer.put(bytes(1 << 17))
    return store_path
