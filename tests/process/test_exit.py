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


#: What a script does, its stop, what is there afterwards.
ENDS: dict[str, tuple[str, str, list[int]]] = {
    "what a script does at its own exit comes first": (
        """
store = opened("a")
def last():
    store.writer("Orders").put(b"0:")
atexit.register(last)
""",
        "clean",
        [0],
    ),
    # The import counts, not the first use of `rocketstore.open`, which loads the engine.
    "a handler that was registered before the open comes first": (
        """
def last():
    store.writer("Orders").put(b"0:")
atexit.register(last)
store = opened("a")
""",
        "clean",
        [0],
    ),
    # A daemon that follows is not told of a closed store: nobody asked it to end.
    "threads that go on until the end are left in peace": (
        """
store = opened("a")
store.writer("Orders").put(b"0:")
seen = threading.Event()
def follow():
    for message in store.consumer("Orders").follow():
        seen.set()
threading.Thread(target=follow, daemon=True).start()
assert seen.wait(20)
""",
        "clean",
        [0],
    ),
    # By a daemon, which the end of the interpreter would stop in the middle.
    "a close that goes on is waited for": (
        """
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
""",
        "clean",
        [0],
    ),
    "a store that has failed is not waited for": (
        """
logging.disable()
store = opened("a")
store.writer("Orders").put(b"0:")
parts(store).checkpointer._on_failure(OSError(5, "pulled the plug"))
""",
        "unclean",
        [0],
    ),
    # Not even one that Python does not know of.
    "a forked child closes nothing at its end": (
        """
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
""",
        "clean",
        [0, 1],
    ),
}


@pytest.mark.parametrize(("program", "mode", "numbers"), ENDS.values(), ids=ENDS)
def test_an_end_without_close(tmp_path: Path, program: str, mode: str, numbers: list[int]) -> None:
    ended = run(tmp_path, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert found(tmp_path / "a") == (mode, numbers)


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
