"""One store in a process of its own: a master that puts numbers, or a copy.

`python -m tests.replication.node master DIR PROMISE FIRST`: prints `at ADDRESS`, then `sent N` before and
`acked N` after each put, from number FIRST on, until it is killed.
`python -m tests.replication.node copy DIR ADDRESS`: prints `open`, then `end OFFSET` as its log grows.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocketstore import ReplicasUnavailableError, ReplicaTimeoutError
from tests.replication.copies import address_of, copy_of, open_copy, open_master

SOON = timedelta(milliseconds=300)
TIMES: dict[str, Any] = {"heartbeat_every": timedelta(milliseconds=50), "silence_limit": SOON}


def _say(text: str) -> None:
    print(text, flush=True)


def master(path: Path, promise: Any, first: int) -> None:
    with open_master(path, replica_timeout=SOON, **TIMES) as store:
        _say(f"at {address_of(store)}")
        writer = store.writer("orders")
        for number in range(first, sys.maxsize):
            _say(f"sent {number}")
            try:
                writer.put(b"%d" % number + b" " * (number * 41 % 200), durability=promise)
            except (ReplicasUnavailableError, ReplicaTimeoutError):
                time.sleep(0.01)
                continue
            _say(f"acked {number}")


def copy(path: Path, address: str) -> None:
    with open_copy(path, address, **TIMES) as store:
        _say("open")
        while copy_of(store).error is None:
            time.sleep(0.05)
        _say(f"stopped {copy_of(store).error}")


if __name__ == "__main__":
    role, directory, *more = sys.argv[1:]
    if role == "master":
        master(Path(directory), more[0], int(more[1]))
    else:
        copy(Path(directory), more[0])
