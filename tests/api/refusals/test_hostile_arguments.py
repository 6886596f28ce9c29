"""Arguments that say one thing and hold another, and calls at a wrong time: each ends in an error.

Without the check that a case is about, most of them read memory that is not theirs, or wait for ever. So
each runs in a process of its own, which ends by a signal then.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
from rocketstore._native.append.put_result import restore_put_result
from rocketstore._native.put.put_columns import MessageColumns
from rocketstore._native.put.string_rows import Strings
from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(300, method="thread")

OPENED = """
import os, signal, sys, threading
import numpy as np
import rocketstore
from rocketstore import CompletionPort
class Waiter:
    def __init__(self, then=None): self.then, self.result = then, None
    def done(self): return False
    def set_exception(self, error): raise error
    def set_result(self, result):
        self.result = result
        if self.then is not None: self.then()
small = {"commit_log_file_size_bytes": 1 << 20}
store = rocketstore.open(sys.argv[1], "rw", **small)
writer = store.writer("orders", durability="os")
"""


def run(tmp_path: Path, code: str) -> None:
    """Runs `code` with an open store; it fails by an error or a signal."""
    program = [sys.executable, "-c", OPENED + code, str(tmp_path / "store")]
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr


# ---- columns ----

LYING = """
class Topics:
    def __iter__(self): return iter(["orders"])
    def __len__(self): return 1 << 20
rows = np.array([1 << 19], np.int32)
try:
    {call}
except rocketstore.MessageRejectedError as error:
    assert "places in topics are 0 … 0, not 524288" in str(error), error
else:
    raise AssertionError("taken")
"""


@pytest.mark.parametrize(
    "call",
    [
        "rocketstore.encode_frames(([0, 1], b'x'), topics=Topics(), topic_rows=rows)",
        "store.put_columns(([0, 1], b'x'), topics=Topics(), topic_rows=rows)",
    ],
)
def test_topics_that_are_fewer_than_their_len(tmp_path: Path, call: str) -> None:
    """The topic of a row was read behind the end of those that were given."""
    run(tmp_path, LYING.format(call=call))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic_rows": np.ones(1, np.int32)}, "row 0: topic 1 of 1"),
        ({"topic_rows": np.zeros(2, np.int32)}, "more or fewer than 1 rows"),
        ({"queue_ids": np.zeros(0, np.int32)}, "more or fewer than 1 rows"),
        ({"born_ms": np.zeros(0, np.int64)}, "more or fewer than 1 rows"),
        ({"flags": np.zeros(0, np.int32)}, "more or fewer than 1 rows"),
        ({"tags": "empty"}, "more or fewer than 1 rows"),
        ({"property_places": np.array([0, 0])}, "as many values as names"),
        ({"property_places": np.array([0, 9]), "names": "one", "values": "one"}, "beyond 1"),
        ({"property_places": np.array([1, 0]), "names": "one", "values": "one"}, "fall at row 0"),
        ({"property_places": np.array([0]), "names": "one", "values": "one"}, "2 offsets"),
        ({"names": "one", "values": "empty", "property_places": np.array([0, 0])}, "as many"),
    ],
)
def test_the_native_columns_look_themselves(given: dict[str, Any], said: str) -> None:
    texts = {
        "one": Strings(np.array([0, 1]), np.zeros(1, np.uint8)),
        "empty": Strings(np.array([0]), np.zeros(0, np.uint8)),
    }
    found = {name: texts[v] if isinstance(v, str) else v for name, v in given.items()}
    rows = [
        found.pop(name, np.zeros(1, kind))
        for name, kind in (("topic_rows", np.int32), ("queue_ids", np.int32), ("born_ms", np.int64))
    ]
    with pytest.raises(ValueError, match=said):
        MessageColumns(
            texts["one"],
            (b"orders",),
            *rows,
            born_host="127.0.0.1:0",
            max_body=100,
            refused=print,
            **found,
        )


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python code gives no buffers before 3.12")
def test_a_bytearray_that_gives_another_buffer() -> None:
    """Its own size was the bound of what was written to the other."""

    class Memory(bytearray):
        def __buffer__(self, flags: int) -> memoryview:
            return memoryview(bytearray(8))

    # The native part may refuse each subclass first.
    with pytest.raises(TypeError, match=r"into: Memory gives a buffer of 8 bytes|'into' .* Memory"):
        rocketstore.encode_frames(([0, 9000], bytes(9000)), topics=["t"], into=Memory(20_000))


# ---- a forked child ----

FORKED = """
from tests.support.forking import fork
log = writer._log
frames = bytes(rocketstore.encode_frames(([0, 1], b"x"), topics=["orders"])[0])
calls = {
    "put_columns": lambda: writer.put_columns(([0, 1], b"x")),
    "put_columns, columns": lambda: writer.put_columns(([0, 1], b"x"), row_tags=["a"]),
    "store.put_columns": lambda: store.put_columns(([0, 1], b"x"), topics=["orders"]),
    "put_frames": lambda: store.put_frames(frames),
    "has_next": lambda: log.has_next,
    "wants_next": lambda: log.wants_next,
    "set_next": lambda: log.set_next(log.segment_file),
    "snapshot": log.snapshot,
    "notify_at": lambda: log.notify_at(0),
    "admit": log.admit,
    "refuse": lambda: log.refuse(True),
}
big = [bytes(100_000)] * 9
ended = threading.Event()
def put():
    other = store.writer("others", durability="os")
    while not ended.is_set():
        other.put_batch(big)
putting = threading.Thread(target=put, daemon=True)
putting.start()
for name, call in calls.items():
    for _ in range(3):
        pid = fork()
        if pid == 0:
            signal.alarm(5)
            try:
                call()
            except rocketstore.StoreClosedError as error:
                os._exit(0 if "forked child" in str(error) else 2)
            except BaseException as error:
                os.write(2, repr(error).encode())
            os._exit(3)
        _, status = os.waitpid(pid, 0)
        if status:
            os.write(2, f"{name}: the child ended with {status}; {signal.SIGALRM}: it waited".encode())
            os._exit(1)
ended.set()
putting.join()
"""


def test_a_child_never_takes_the_append_mutex(tmp_path: Path) -> None:
    """A thread of the parent may have held it, and does not exist in the child: it waited for ever.

    Children are forked while batches are copied.
    """
    run(tmp_path, FORKED)


# ---- the completion port ----

PORTS = {
    "a store that is only read": """
result = writer.put(b"x")
store.close()
port = CompletionPort(rocketstore.open(sys.argv[1], "r"))
waiter = Waiter()
assert port.promise(result, "memory", waiter) == rocketstore.completion_port.Placed.MET
assert waiter.result is result
""",
    "a port that was never made": """
waiter = Waiter()
result = writer.put(b"x")
CompletionPort.__new__(CompletionPort).promise(result, "memory", waiter)
assert waiter.result is result
""",
    "a port that is made a second time": """
writer.put(b"x")  # makes a segment, for which a port does not wait
port = CompletionPort(store)
assert port.put(writer, b"x", None, None, None, 0, None, None, "disk", Waiter())
try:
    port.__init__(rocketstore.open(sys.argv[1], "r"))
except TypeError as error:
    assert "a second time" in str(error)
else:
    raise AssertionError("made again")
port.request_flush()
os.fstat(port.fileno())
""",
    "no writer": """
try:
    CompletionPort(store).put(None, b"x", None, None, None, 0, None, None, "disk", Waiter())
except TypeError:
    sys.exit(0)
raise AssertionError("taken")
""",
    # The entry before the head is None; what lies behind it in memory decided the order of the line.
    "a waiter that puts again while all of its line are settled": """
writer.put(b"x")
port = CompletionPort(store)
def put(waiter):
    assert port.put(writer, b"x", None, None, None, 0, None, None, "disk", waiter)
last = Waiter()
for _ in range(5):
    put(Waiter(lambda: put(last)))
    port.request_flush()
    store.wait_flushed(store.end_offset)
    while last.result is None:
        port.settle()
        port.request_flush()
    last.result = None
""",
}


@pytest.mark.parametrize("name", PORTS)
def test_a_completion_port_in_an_odd_state(tmp_path: Path, name: str) -> None:
    run(tmp_path, PORTS[name])


# ---- pickles ----


@pytest.mark.parametrize(
    ("count", "offsets", "rows", "ids"),
    [
        (2**61, b"", b"", b""),
        (2**62, b"", None, b""),
        (2**62, bytes(8), bytes(8), bytes(4)),
        (2**61 + 1, bytes(8), None, None),
        (2**62, None, None, b""),
        (2**40, None, None, None),  # queue_ids would be a list of as many
        (-1, None, None, None),
        (0, None, None, None),
    ],
)
def test_a_result_with_a_count_that_is_not_that_of_its_columns(
    count: int, offsets: bytes | None, rows: bytes | None, ids: bytes | None
) -> None:
    """8 · 2⁶¹ is 0 in 64 bits, and the columns were read behind their end."""
    with pytest.raises(ValueError, match="not the pickle of a PutResult"):
        restore_put_result(0, 1, 0, 0, 0, count, 0, b"", offsets, rows, ids)
