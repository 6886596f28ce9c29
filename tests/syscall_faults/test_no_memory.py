"""Each allocation of an act fails once, in Python's memory and in what native code takes from it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.other_process import number_of, open_small, other_process

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("_testcapi") is None, reason="this Python has no _testcapi"
)

#: What CPython itself does where an allocation fails. Some versions of CPython, 3.12.1 and 3.13.0 among them, die here.
WITHOUT = """
import _testcapi, gc, threading
def handed_out(fetch):
    while True:
        with threading.Lock():
            if not fetch():
                return
        yield 1
def act():
    left = [1, 2]
    list(handed_out(lambda: left and left.pop()))
gc.disable()
for number in range(300):
    _testcapi.set_nomemory(number, number + 1)
    try:
        act()
    except (MemoryError, RuntimeError, SystemError):
        pass
    finally:
        _testcapi.remove_mem_hooks()
"""

#: Does `act` again and again, each time with a later allocation failing, until none does; says how many
#: failed, and what was acknowledged. Nothing but the act runs: no timer of the store is near.
EACH = """
import _testcapi, gc
store = rocketstore.open(path, **options)
writer = store.writer(TOPIC)
for number in range(5):
    writer.put(b"%d:warm" % number, keys="warm")
list(store.consumer(TOPIC)); store.query(TOPIC, "warm"); store.get(0)
acked = [5]
def put():
    acked[0] += writer.put(b"0:put", keys=("a", "b"), tags="t", properties={"p": "q"}).count or 1
def read():
    for message in store.consumer(TOPIC):
        message.body, message.properties, message.keys
def query():
    store.query(TOPIC, "warm", limit=5)
act = {"put": put, "read": read, "query": query}[given]
act()
failed = broken = 0
# Made here: the allocation that fails may be any, and the names of an `except` are looked up each time.
AS_PYTHON_TELLS, STORE_FAILED = (RuntimeError, SystemError), rocketstore.StoreFailedError
gc.disable()
for number in range(3000):
    error = None
    _testcapi.set_nomemory(number, number + 1)
    try:
        act()
    except MemoryError:
        error = "memory"
    except AS_PYTHON_TELLS as told:
        assert str(told) in ("can't allocate lock", "error return without exception set"), told
        error = "memory"
    except STORE_FAILED:
        error = "failed"
    finally:
        _testcapi.remove_mem_hooks()
    if error == "failed":
        broken += 1
        store.close()
        store = rocketstore.open(path, **options)
        writer = store.writer(TOPIC)
    elif error is not None:
        failed += 1
    elif number > 300:
        break
store.close()
say(json.dumps([failed, broken, acked[0]]))
"""


@pytest.mark.parametrize("act", ["put", "read", "query"])
def test_each_allocation_fails(tmp_path: Path, act: str) -> None:
    """D-13: MemoryError, never a crash; what was acknowledged is there, and nothing is there by half."""
    if subprocess.run([sys.executable, "-c", WITHOUT], check=False).returncode < 0:
        pytest.skip("this Python dies by itself where an allocation fails")
    with other_process(EACH, tmp_path, given=act, durability="os") as other:
        said = other.line()
        code = other.process.wait(60)
        assert said and code == 0, f"it ended with {code}"
    failed, _, acked = json.loads(said)
    assert failed > 0 or act == "put"  # a single put hardly takes any
    with open_small(tmp_path) as store:
        found = [bytes(message.body) for message in store.consumer("Orders")]
        assert len(found) >= acked
        assert {number_of(body) if b":" in body else -1 for body in found} <= {-1, *range(40)}
