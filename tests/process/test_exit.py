"""A process that ends without `close`: its stores are closed at its end, or not waited for any longer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.engine import exit_hook
from tests.process.other_process import SMALL, arriving, open_small
from tests.support.small_store import engine_of, parts

InChild = Callable[[Callable[[], object]], None]

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

BEGIN = """
import atexit, json, logging, os, sys, threading, time
from pathlib import Path
import rocketstore
from tests.support.small_store import engine_of, parts
logging.getLogger("rocketstore").setLevel(logging.ERROR)  # a busy machine is slow
root, small = json.loads(sys.argv[1])
def opened(name, **options):
    return rocketstore.open(Path(root) / name, **{**small, **options})
"""


def run(root: Path, program: str) -> subprocess.CompletedProcess[str]:
    """The end of a script that never closes."""
    repository = str(Path(rocketstore.__path__[0]).parent)
    return subprocess.run(
        [sys.executable, "-c", BEGIN + program, json.dumps([str(root), SMALL])],
        env={"PYTHONPATH": repository, "PATH": ""},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def found(path: Path) -> tuple[str, list[int]]:
    """How it was stopped, and what is there."""
    with open_small(path) as store:
        mode = store.recovery.mode
        wanted = store.max_queue_offset("Orders", 0)
        return mode, arriving(store.consumer("Orders"), wanted)


PUTS = """
for name, durability in (("a", "disk"), ("b", "os"), ("c", "memory")):
    writer = opened(name, durability=durability).writer("Orders")  # nobody holds the store
    for number in range(50):
        writer.submit(b"%d:" % number, durability="memory")
"""


@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("sys.exit(3)", 3), ("raise RuntimeError('oh')", 1)]
)
def test_stores_are_closed_at_the_end(tmp_path: Path, end: str, code: int) -> None:
    """Several, of all promises, also those whose handle is lost and after an exception."""
    ended = run(tmp_path, PUTS + end)
    assert ended.returncode == code
    assert ended.stderr.endswith("RuntimeError: oh\n" if code == 1 else "")
    assert ("" if code == 1 else ended.stderr) == ""
    for name in "abc":
        assert found(tmp_path / name) == ("clean", list(range(50)))


def test_what_a_script_does_at_its_own_exit_comes_first(tmp_path: Path) -> None:
    program = """
store = opened("a")
def last():
    store.writer("Orders").put(b"0:")
atexit.register(last)
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert found(tmp_path / "a") == ("clean", [0])


def test_a_handler_that_was_registered_before_the_open_comes_first_too(tmp_path: Path) -> None:
    """The import counts, not the first use of `rocketstore.open`, which loads the engine."""
    program = """
def last():
    store.writer("Orders").put(b"0:")
atexit.register(last)
store = opened("a")
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert found(tmp_path / "a") == ("clean", [0])


def test_threads_that_go_on_until_the_end_are_left_in_peace(tmp_path: Path) -> None:
    """A daemon that follows is not told of a closed store: nobody asked it to end."""
    program = """
store = opened("a")
store.writer("Orders").put(b"0:")
seen = threading.Event()
def follow():
    for message in store.consumer("Orders").follow():
        seen.set()
threading.Thread(target=follow, daemon=True).start()
assert seen.wait(20)
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert found(tmp_path / "a") == ("clean", [0])


def test_a_disk_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """It is told, the other store is closed, and the next open recovers what was put."""
    program = """
from rocketstore.engine import exit_hook
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
exit_hook.LONGEST_S = 1.0
hanging, other = opened("a"), opened("b")
for store in (hanging, other):
    store.writer("Orders").put(b"0:")
parts(hanging).checkpointer._sync_queues = lambda: threading.Event().wait()
"""
    began = time.monotonic()
    ended = run(tmp_path, program)
    assert time.monotonic() - began < 30
    assert ended.returncode == 0
    assert f"{tmp_path}/a: not closed within 1 s of the end" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert found(tmp_path / "a") == ("unclean", [0])
    assert found(tmp_path / "b") == ("clean", [0])


def test_a_close_that_goes_on_is_waited_for(tmp_path: Path) -> None:
    """By a daemon, which the end of the interpreter would stop in the middle."""
    program = """
store = opened("a")
store.writer("Orders").put(b"0:")
checkpointer = parts(store).checkpointer
begun, close_clean = threading.Event(), checkpointer.close_clean
def slowly():
    begun.set()
    time.sleep(0.5)
    return close_clean()
checkpointer.close_clean = slowly
threading.Thread(target=store.close, daemon=True).start()
assert begun.wait(20)
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert found(tmp_path / "a") == ("clean", [0])


def test_a_store_that_has_failed_is_not_waited_for(tmp_path: Path) -> None:
    program = """
logging.disable()
store = opened("a")
store.writer("Orders").put(b"0:")
parts(store).checkpointer._on_failure(OSError(5, "pulled the plug"))
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert found(tmp_path / "a") == ("unclean", [0])


def test_a_forked_child_closes_nothing_at_its_end(tmp_path: Path) -> None:
    """Not even one that Python does not know of."""
    program = """
import ctypes, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of such a fork
store = opened("a")
writer = store.writer("Orders")
writer.put(b"0:")
sys.setswitchinterval(0.5)  # tests.support.forking.unasked_gil
for fork in (os.fork, ctypes.PyDLL(None).fork):
    time.sleep(0.02)
    pid = fork()
    if pid == 0:
        sys.exit(7)
    began = time.monotonic()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert time.monotonic() - began < 20
assert (Path(engine_of(store).path) / "abort").exists()
writer.put(b"1:")
"""
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert found(tmp_path / "a") == ("clean", [0, 1])


def test_nothing_is_kept_of_a_store_that_is_closed(tmp_path: Path, in_child: InChild) -> None:
    def kept(store: Store) -> bool:
        return engine_of(store) in exit_hook._open

    with open_small(tmp_path) as store:
        assert kept(store)
        in_child(lambda: None if not kept(store) else pytest.fail("kept"))
        with open_small(tmp_path, "r") as reader:
            assert not kept(reader)
    assert not kept(store)
    store = open_small(tmp_path)
    parts(store).checkpointer._on_failure(OSError(5, "pulled the plug"))
    store.close()
    assert not kept(store)
    open_small(tmp_path).destroy()
    assert not exit_hook._open
