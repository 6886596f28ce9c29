"""The process that the demo kills: puts numbered messages and reports each after its put returned.

    python -m rocketstore.cli.demo.writer STORE DURABILITY FIRST_NUMBER DESCRIPTOR

Reports are lines on DESCRIPTOR, each one `os.write`: "open" before the store is opened, then
"NUMBER NANOSECONDS" for each acknowledged message.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
from typing import Final, cast

import rocketstore

__all__ = ["TOPIC", "body", "main"]

TOPIC: Final = "demo-kills"
_BLOCK: Final = bytes(range(256)) * 8


def body(number: int) -> bytes:
    """The body of message `number`: its number, then 0 … 1499 bytes that depend on it."""
    start = number % 251
    return b"%d:" % number + _BLOCK[start : start + number * 7919 % 1500]


def main(path: str, durability: rocketstore.Durability, first: int, descriptor: int) -> None:
    """Goes on until it is killed."""
    logging.getLogger("rocketstore").setLevel(logging.CRITICAL)
    os.write(descriptor, b"open\n")
    clock = time.perf_counter_ns
    with rocketstore.open(path, "r+", durability=durability) as store:
        writer = store.writer(TOPIC, queue_id=0)
        for number in itertools.count(first):
            before = clock()
            writer.put(body(number))
            os.write(descriptor, b"%d %d\n" % (number, clock() - before))


if __name__ == "__main__":
    main(
        sys.argv[1], cast("rocketstore.Durability", sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    )
