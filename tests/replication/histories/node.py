"""One store in a process of its own: a master that is given puts, a copy, or a promotion.

`python -m tests.replication.histories.node master DIR LABEL`: says `at ADDRESS`. Each of its writers says
`sent NAME TIME` before, and `acked NAME TIME` or `failed NAME TIME` after each put, until it is killed.
`… copy DIR ADDRESS`: says `open`, and `stopped ERROR` when the copy does not go on. Then it opens it again.
`… promote DIR ABOVE`: says `ready`, then `promoted`.

In the environment NODE has JSON: `promise` of the puts, and `key`, in hex. A line `clock SECONDS` on
stdin makes the wall clock of the store jump. The end of stdin ends the process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocketstore import (
    DurabilityTimeoutError,
    FencedError,
    ReplicasUnavailableError,
    ReplicaTimeoutError,
    Store,
)
from rocketstore.replication import promote
from rocketstore.testing import ManualClock
from tests.replication.copies import address_of, copy_of, open_copy, open_master

__all__ = ["SHAPE", "TIMES"]

#: Several segments and queue files a second, and not hundreds.
SHAPE: dict[str, Any] = {
    "commit_log_file_size_bytes": 1 << 16,
    "consume_queue_file_size_bytes": 20 * 500,
    "index_slots": 100,
    "index_entries": 400,
}
SILENCE = timedelta(milliseconds=400)
TIMES: dict[str, Any] = {"heartbeat_every": timedelta(milliseconds=50), "silence_limit": SILENCE}
WRITERS = 3
#: Between two puts of a writer, and after one that failed, seconds.
PUT_EVERY_S, AFTER_FAILURE_S = 0.002, 0.02


def _say(*words: object) -> None:
    """One call of the system: what is said before a kill is said whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def _clock() -> ManualClock:
    """A wall clock that goes on, and jumps when stdin says so."""
    clock, ahead = ManualClock(), [0.0]

    def go_on() -> None:
        while True:
            clock.set(int((time.time() + ahead[0]) * 1000))
            time.sleep(0.01)

    def listen() -> None:
        for line in sys.stdin:
            ahead[0] += float(line.split()[1])
        os._exit(0)

    for work in (go_on, listen):
        threading.Thread(target=work, daemon=True).start()
    return clock


def _put(store: Store, label: str, queue: int, promise: Any) -> None:
    writer, number = store.writer("orders", queue_id=queue), 0
    while True:
        number += 1
        name = f"{label}.{queue}.{number}"
        body = f"{name} ".encode() + b" " * (number * 41 % 200)
        _say("sent", name, time.monotonic())
        pause_s = AFTER_FAILURE_S
        try:
            writer.put(body, durability=promise)
        except (ReplicasUnavailableError, ReplicaTimeoutError, DurabilityTimeoutError):
            # The last of them: the process was paused for longer than sync_flush_timeout_ms.
            _say("failed", name, time.monotonic())
        except FencedError:
            _say("fenced", name, time.monotonic())
        except BaseException as error:
            _say("broken", repr(error))
            os._exit(1)
        else:
            _say("acked", name, time.monotonic())
            pause_s = PUT_EVERY_S
        time.sleep(pause_s)


def master(path: Path, label: str, promise: str, key: bytes | None) -> None:
    options = {**SHAPE, "clock": _clock()}
    with open_master(path, options, replica_timeout=SILENCE, key=key, **TIMES) as store:
        _say("at", address_of(store))
        writers = [
            threading.Thread(target=_put, args=(store, label, queue, promise))
            for queue in range(WRITERS)
        ]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()


def copy(path: Path, address: str, key: bytes | None) -> None:
    """A copy that stops is opened again, as a supervisor does."""
    options = {**SHAPE, "clock": _clock()}
    while True:
        with open_copy(path, address, options, key=key, **TIMES) as store:
            _say("open")
            while (error := copy_of(store).error) is None:
                time.sleep(0.02)
            _say("stopped", type(error).__name__, str(error).replace("\n", " "))
        time.sleep(0.05)


if __name__ == "__main__":
    role, directory, word = sys.argv[1:]
    settings = json.loads(os.environ["NODE"])
    secret = bytes.fromhex(settings["key"]) or None
    if role == "master":
        master(Path(directory), word, settings["promise"], secret)
    elif role == "copy":
        copy(Path(directory), word, secret)
    else:
        _say("ready")
        promote(directory, above=int(word))
        _say("promoted")
