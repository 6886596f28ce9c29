"""One machine of `examples/etcd_failover.py`, which puts numbers while it is the master.

`python -m tests.replication.role.etcd_machine NAME DIR ETCD ADDRESS FILE`: for each put a line in FILE, of the
number, when the put began and ended, and "acked", "taken" or "fenced".
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from pathlib import Path
from typing import TextIO

from rocketstore import FencedError, ReplicasUnavailableError, ReplicaTimeoutError, Store
from tests.replication.role.etcd import SECONDS, example
from tests.support.small_store import SMALL

#: Between two puts, seconds: less than a renewal takes, and few enough to read them all.
STEP_S = 0.005


def numbers(store: Store, name: str, told: TextIO) -> None:
    """Puts until one is refused."""
    writer = store.writer("orders")
    for count in itertools.count():
        number = f"{name}.{os.getpid()}.{time.monotonic_ns()}.{count}"
        begun, result = time.monotonic(), "acked"
        try:
            writer.put(number.encode())
        except (ReplicasUnavailableError, ReplicaTimeoutError):
            result = "taken"
        except FencedError:
            result = "fenced"
            raise
        finally:
            told.write(f"{number} {begun} {time.monotonic()} {result}\n")
            told.flush()
        time.sleep(STEP_S)


def main(name: str, path: str, etcd: str, listen: str, file: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
    module = example()
    with open(file, "a") as told:
        module.Machine(
            module.Etcd(etcd),
            name,
            Path(path),
            listen,
            seconds=SECONDS,
            patience_s=1.0,
            options=SMALL,
        ).run(lambda store: numbers(store, name, told))


if __name__ == "__main__":
    main(*sys.argv[1:])
