"""A master in a process of its own, whose services are at work when it is killed.

`python -m tests.replication.serving_master DIR`: prints `at ADDRESS`, waits for a line, does its work,
prints what it has promised as one line of JSON, and goes on delivering until it is killed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocketstore import Store
from tests.replication.copies import SOON, address_of, open_master
from tests.support.waiting import wait_until

__all__ = ["BEAT_S", "DELAYS", "GROUP", "OPTIONS"]

OPTIONS: dict[str, Any] = {"commit_log_file_size_bytes": 1 << 16}
#: Levels 1 … 3.
DELAYS = "1s 2s 4s"
BEAT_S = 1
GROUP = "work"
BOTH: Any = "replicas(2)"
#: With what the log is on both machines before the promise is said.
COUNT = 30


def main(path: Path) -> None:
    rng = random.Random(int(sys.argv[2]))
    settings: dict[str, Any] = {"heartbeat_every": SOON, "replica_timeout": timedelta(seconds=60)}
    with open_master(path, {**OPTIONS, "delay_levels": DELAYS}, **settings) as store:
        print(f"at {address_of(store)}", flush=True)
        sys.stdin.readline()
        store.writer("begin").put(b"begin", durability="disk")
        # From here on the copy counts for a promise.
        wait_until(lambda: [one.synced for one in store.replication.peers] == [store.end_offset])
        said: dict[str, Any] = {}
        _delays(store, rng, said)
        _transactions(store, said)
        _groups(store, said)
        store.writer("end").put(b"end", durability=BOTH)
        print(json.dumps(said), flush=True)
        sys.stdin.readline()


def _delays(store: Store, rng: random.Random, said: dict[str, Any]) -> None:
    writer = store.writer("orders")
    for number in range(COUNT):
        writer.put(b"level %d" % number, delay_level=1 + number % 3)
    said["never"], said["once"] = [], [f"level {n}" for n in range(COUNT)]
    for number in range(COUNT):
        wait = timedelta(milliseconds=rng.randrange(4000))
        body = b"timer %d" % number
        put = writer.put(body, deliver_after=wait + timedelta(seconds=2 if number % 3 else 0))
        if number % 3 == 1 and store.delayed.cancel(put):
            said["never"].append(body.decode())
            continue
        if number % 3 == 2:
            store.delayed.reschedule(put, time.time_ns() // 1_000_000 + 2500)
        said["once"].append(body.decode())
    said["beat"] = store.delayed.repeat("beats", b"beat", timedelta(seconds=BEAT_S))
    # Twice where this process was stopped until the first one was delivered.
    for number in range(2):
        body, began = b"gone %d" % number, time.monotonic()
        gone = store.delayed.repeat("beats", body, timedelta(seconds=BEAT_S))
        assert store.delayed.cancel(gone)
        if time.monotonic() - began < BEAT_S:
            said["never"].append(body.decode())
            break


def _transactions(store: Store, said: dict[str, Any]) -> None:
    made = [store.transactions.prepare("paid", b"half %d" % n, group="billing") for n in range(9)]
    for number, one in enumerate(made):
        if number % 3 == 0:
            one.commit()
        elif number % 3 == 1:
            one.rollback()
    said["paid"] = [f"half {n}" for n in range(0, 9, 3)]
    said["open"] = [one.id for one in made[2::3]]


def _groups(store: Store, said: dict[str, Any]) -> None:
    """The offset of the first transaction is over what a commit stored that may not have travelled."""
    for number in range(20):
        store.writer("in").put(b"%d" % number)
    store.flush()
    with store.consumer("in", group=GROUP) as consumer:
        consumer.commit({0: 5})
        consumer.seek(5, queue_id=0)
        for _ in range(2):
            with store.transaction(durability=BOTH) as tx:
                for message in consumer.poll(3):
                    tx.put("out", b"from " + bytes(message.body))
                tx.commit_offsets(consumer)
        said["group"] = consumer.positions[0]
    said["out"] = [f"from {n}" for n in range(5, said["group"])]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
