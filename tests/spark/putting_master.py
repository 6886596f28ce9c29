"""A master in a process of its own, which puts numbers until it is killed.

`python -m tests.spark.putting_master DIR ADDRESS FIRST`: each body is a number, from FIRST on, a blank, and
when it was put, in nanoseconds; prints each number once it is on the disk.
"""

from __future__ import annotations

import itertools
import sys
import time

import rocketstore
from rocketstore.replication import Master

SEGMENT_BYTES = 1 << 20
PAUSE_S = 0.004


def main(path: str, address: str, first: str) -> None:
    master = Master(listen=address)
    with rocketstore.open(
        path, commit_log_file_size_bytes=SEGMENT_BYTES, replication=master
    ) as store:
        writer = store.writer("orders")
        for number in itertools.count(int(first)):
            writer.put(b"%d %d" % (number, time.time_ns()))
            print(number, flush=True)
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
