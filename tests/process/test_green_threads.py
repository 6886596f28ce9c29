"""A process whose threads are green, by gevent or eventlet: an error, never a wait for ever.

The tests with the packages themselves are skipped where these are not installed.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import tools
from rocketstore._native.os import syscalls
from rocketstore.engine import exit_hook
from rocketstore.values import threads
from rocketstore.values.threads import start_thread
from tests.support.small_store import engine_of, open_small

PATCHES = {
    "gevent": "from gevent import monkey; monkey.patch_all({})",
    "eventlet": "import eventlet; eventlet.monkey_patch({})",
}
WRITE = """
with rocketstore.open(path) as store:
    store.writer("T").put(b"y")
    print([bytes(m.body) for m in store.consumer("T")])
"""
BACKGROUND = """
import asyncio
import time
import rocketstore.aio
from rocketstore import tools

tools.rebuild(path)
came = []
with rocketstore.open(path, on_arrival=lambda *arrival: came.append(arrival)) as store:
    store.writer("T").put(b"y")
print(len(came))


async def put():
    async with rocketstore.aio.open(path) as store:
        print((await store.writer("T").put(b"z")).durability)


asyncio.run(put())
"""
READ = """
import asyncio
import rocketstore.aio
from rocketstore import tools

print(tools.verify(path).faults)
print(sum(chunk.rows for chunk in rocketstore.scan(path, columns=["size"], threads=4)))
with rocketstore.open(path, "r") as store:
    consumer = store.consumer("T")
    print([bytes(m.body) for m in consumer.poll()], consumer.poll(timeout_s=0.1))


async def read():
    async with rocketstore.aio.open(path, "r") as store:
        print([bytes(m.body) for m in await store.consumer("T").poll()])


asyncio.run(read())
"""
#: The store is open already when the process is patched.
LATE = """
store = rocketstore.open(path)
{patch}
ticket = store.writer("T").submit(b"y")
print(ticket.result(5).durability)
try:
    ticket.future()
except OSError as error:
    print(error)
print(sum(chunk.rows for chunk in rocketstore.scan(store, columns=["size"], threads=4)))
"""


def _ran(path: Path, before: str, after: str) -> subprocess.CompletedProcess[str]:
    """A process with a store of one message at `path`, ended by a time that none of it needs."""
    with open_small(path) as store:
        store.writer("T").put(b"x")
    head = "import faulthandler, sys\nfaulthandler.dump_traceback_later(40, exit=True)\n"
    lines = f"{head}{before}\nimport rocketstore\npath = sys.argv[1]\n{after}"
    return subprocess.run(
        [sys.executable, "-c", lines, path], capture_output=True, text=True, timeout=60, check=False
    )


def _patch(package: str, arguments: str) -> str:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    return PATCHES[package].format(arguments)


@pytest.mark.parametrize(
    "open_it",
    [
        rocketstore.open,
        lambda path: rocketstore.open(path, "r+"),
        tools.repair,
        tools.rebuild,
    ],
)
def test_no_store_is_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_it: Callable[[Path], Any]
) -> None:
    with open_small(tmp_path / "s") as store:
        store.writer("T").put(b"x")
    with monkeypatch.context() as patched:
        for name in threads.STARTERS:
            patched.setattr(threading, name, lambda *_, **__: 0, raising=False)
        with pytest.raises(rocketstore.ConfigError, match=r"patch_all\(thread=False\)"):
            open_it(tmp_path / "s")
        with open_small(tmp_path / "s", "r") as store:
            assert [m.body for m in store.consumer("T").poll()] == [b"x"]
    with open_small(tmp_path / "s"):  # the lock is free
        pass


def test_a_process_that_is_patched_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that the open store starts later would be green, and its wait for ever."""
    with open_small(tmp_path / "s") as store:
        ticket = store.writer("T").submit(b"x")
        with monkeypatch.context() as patched:
            for name in threads.STARTERS:
                patched.setattr(threading, name, lambda *_, **__: 0, raising=False)
            with pytest.raises(OSError, match=r"before the store is opened.*thread=False"):
                ticket.future()
            store.close()
    with open_small(tmp_path / "s", "r") as store:
        assert [m.body for m in store.consumer("T").poll()] == [b"x"]


def test_a_worker_knows_its_own_thread_by_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit lets the checkpointer close the store, which stops the checkpointer."""
    store = open_small(tmp_path / "s")
    monkeypatch.setattr(exit_hook, "LONGEST_S", 10)
    monkeypatch.setattr(exit_hook, "_open", {engine_of(store): syscalls.process_token()})
    monkeypatch.setattr(threading, "current_thread", object)
    exit_hook.close_all()
    monkeypatch.undo()
    exit_hook.forget(engine_of(store))
    assert store.closed
    with open_small(tmp_path / "s"):  # the lock is free
        pass


@pytest.mark.parametrize("package", PATCHES)
def test_a_patched_process_writes_nothing(tmp_path: Path, package: str) -> None:
    done = _ran(tmp_path / "s", _patch(package, ""), WRITE)
    assert done.returncode == 1 and "patch_all(thread=False)" in done.stderr


@pytest.mark.parametrize("package", PATCHES)
def test_a_patched_process_reads(tmp_path: Path, package: str) -> None:
    done = _ran(tmp_path / "s", _patch(package, ""), READ)
    assert done.stdout.splitlines() == ["()", "1", "[b'x'] []", "[b'x']"], done.stderr


@pytest.mark.parametrize("package", PATCHES)
def test_a_process_with_native_threads(tmp_path: Path, package: str) -> None:
    done = _ran(tmp_path / "s", _patch(package, "thread=False"), WRITE)
    assert (done.returncode, done.stdout) == (0, "[b'x', b'y']\n"), done.stderr


@pytest.mark.parametrize("package", PATCHES)
def test_threads_that_wait_at_a_queue_of_python(tmp_path: Path, package: str) -> None:
    """`thread=False` leaves gevent's own `queue.SimpleQueue`, where native threads wait for
    ever."""
    done = _ran(tmp_path / "s", _patch(package, "thread=False"), BACKGROUND)
    assert (done.returncode, done.stdout) == (0, "1\ndisk\n"), done.stderr


@pytest.mark.parametrize("end", ["store.close()", ""], ids=["close", "exit"])
@pytest.mark.parametrize("package", PATCHES)
def test_a_process_that_is_patched_with_an_open_store(
    tmp_path: Path, package: str, end: str
) -> None:
    done = _ran(tmp_path / "s", "", LATE.format(patch=_patch(package, "")) + end)
    level, refusal, rows = done.stdout.splitlines()
    assert done.returncode == 0 and "Timeout" not in done.stderr, done.stderr
    assert (level, rows) == ("disk", "2") and "before the store is opened" in refusal
    with open_small(tmp_path / "s") as store:
        assert store.recovery.mode == "clean"


def test_a_thread_that_finds_no_memory_is_no_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dies of MemoryError before it says that it began."""
    monkeypatch.setattr(threads, "START_S", 0.01)
    monkeypatch.setattr(threads, "_are_green", lambda: False)
    for name in threads.STARTERS:
        monkeypatch.setattr(threading, name, lambda *_, **__: 0, raising=False)
    thread = threading.Thread(target=print, name="no-memory")
    with pytest.raises(OSError, match="no thread for no-memory"):
        start_thread(thread)
    assert thread not in threading.enumerate()
