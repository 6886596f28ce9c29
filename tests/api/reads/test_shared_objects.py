"""One object that two threads use, and memory that changes while a call reads it: typed errors, never a crash."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import rocketstore
from rocketstore import Consumer, ConsumerBusyError
from rocketstore.tools import verify
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300, method="thread")

#: A signal's handler empties `into` while frames are encoded into it.
EMPTIED_BY_A_HANDLER = """
import signal
import numpy as np
import rocketstore

rows = 20_000
names = (np.arange(rows + 1) * 7, b"".join(b"n%06d" % row for row in range(rows)))
values = (np.arange(rows + 1), b"b" * rows)
bodies = (np.arange(rows + 1) * 4, b"abcd" * rows)
into = bytearray(16 << 20)
refused = 0

def empty(*_):
    global refused
    try:
        into.clear()
    except BufferError:
        refused += 1

signal.signal(signal.SIGALRM, empty)
given = {"topics": ["t"], "properties": (np.arange(rows + 1), names, values)}
whole = bytes(rocketstore.encode_frames(bodies, born_timestamps_ms=1, **given)[0])
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for _ in range(1000):
    frames, left_out = rocketstore.encode_frames(bodies, born_timestamps_ms=1, into=into, **given)
    held = bytes(frames)
    frames.release()
    assert held == whole and not left_out, len(held)
    if refused > 3:
        break
signal.setitimer(signal.ITIMER_REAL, 0, 0)
print("refused", refused > 3)
"""


#: Three threads take from one iterator of each kind, again and again: says which messages are twice or
#: missing, and which errors are not those of a second thread.
SHARED_BY_THREADS = """
import collections, faulthandler, sys, threading
import rocketstore

path, name = sys.argv[1:]
faulthandler.dump_traceback_later(100, exit=True)
sys.setswitchinterval(1e-5)
ROWS, ROUNDS = 400, 12
whole = [b"%d" % row for row in range(ROWS)]
files = {"commit_log_file_size_bytes": 1 << 16, "index_slots": 100, "index_entries": 4000}

def calls(take):
    while found := take():
        yield list(found)

with rocketstore.open(path, durability="os", **files) as store:
    writer = store.writer("t")
    writer.put_batch(whole[: ROWS // 2])
    for body in whole[ROWS // 2 :]:
        writer.put(body)
    consumer = lambda: store.consumer("t")
    kinds = {
        "iter": lambda: iter(consumer()),
        "next": consumer,
        "follow": lambda: consumer().follow(0.01),
        "scan": lambda: iter(rocketstore.scan(path, columns=["body"], chunk_bytes=1 << 16)),
        "scan with threads": lambda: iter(rocketstore.scan(path, columns=["body"], threads=2)),
    }
    for _ in range(ROUNDS):
        got, wrong = [], []
        shared = kinds[name]()
        def take():
            while True:
                try:
                    found = next(shared)
                except StopIteration:
                    return
                except rocketstore.ConsumerBusyError:
                    continue
                except ValueError as error:
                    if str(error) == "generator already executing":
                        continue
                    wrong.append(repr(error))
                    return
                except BaseException as error:
                    wrong.append(repr(error))
                    return
                if isinstance(found, rocketstore.Columns):
                    got.extend(bytes(body) for body in found["body"])
                else:
                    got.append(bytes(found.body))
        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = collections.Counter(got)
        counts.subtract(whole)
        print([body for body, count in counts.items() if count], wrong)
"""


def busy(consumer: Consumer) -> bool:
    try:
        consumer.lag()
    except ConsumerBusyError:
        return True
    return False


def test_a_second_thread_at_an_iterator_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path, commit_log_file_size_bytes=1 << 16, durability="os") as store:
        writer = store.writer("orders")
        writer.put(b"0")
        consumer = store.consumer("orders")
        messages = consumer.follow(30)
        assert next(messages).body == b"0"
        got: list[bytes] = []
        waiting = threading.Thread(target=lambda: got.extend(next(messages).body for _ in "12"))
        waiting.start()
        wait_until(lambda: busy(consumer))
        with pytest.raises(ConsumerBusyError, match="another thread is using this consumer"):
            next(messages)
        writer.put_batch([b"1", b"2"])
        waiting.join(30)
        assert got == [b"1", b"2"]


@pytest.mark.parametrize("kind", ["iter", "next", "follow", "scan", "scan with threads"])
def test_threads_that_share_an_iterator_share_its_messages(tmp_path: Path, kind: str) -> None:
    """Each message goes to one of them; who comes while another takes is refused, by the error of a
    consumer or that of a generator."""
    done = subprocess.run(
        [sys.executable, "-c", SHARED_BY_THREADS, str(tmp_path / "s"), kind],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, set(done.stdout.splitlines())) == (0, {"[] []"}), done.stderr


def test_a_handler_cannot_take_the_memory_that_frames_are_written_to() -> None:
    done = subprocess.run(
        [sys.executable, "-c", EMPTIED_BY_A_HANDLER], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr[-300:]) == (0, "refused True\n", "")


def test_frames_that_another_thread_changes_are_stored_as_they_were_checked(tmp_path: Path) -> None:
    rows = 20_000
    text = np.arange(rows + 1)
    frames, _ = rocketstore.encode_frames(
        (text * 4, b"abcd" * rows),
        topics=["t"],
        properties=(text, (text, b"a" * rows), (text, b"b" * rows)),
    )
    given = bytearray(frames)
    # The mark behind the last property: a record without it is a byte longer in the log.
    marks = np.frombuffer(given, np.uint8).reshape(rows, -1)[:, -1]
    going = threading.Event()

    def change() -> None:
        while not going.is_set():
            marks[:] = ord("A")
            marks[:] = 2

    changing = threading.Thread(target=change)
    with rocketstore.open(tmp_path, commit_log_file_size_bytes=64 << 20, durability="os") as store:
        changing.start()
        try:
            stored = sum(store.put_frames(given, timeout_s=60).count for _ in range(20))
        finally:
            going.set()
            changing.join()
        assert store.max_queue_offset("t", 0) == stored == 20 * rows
    assert verify(tmp_path).ok
