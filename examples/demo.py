"""A store from its first message to recovery after a kill, in `demo-store/`: run by `make demo`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import rocketstore

STORE = Path("demo-store")
WRITER = """
import sys, rocketstore
store = rocketstore.open(sys.argv[1])
writer = store.writer("ticks", queue_id=0)
number = 0
while True:
    writer.put(b"tick %d" % number)
    number += 1
    if number % 100 == 0:
        print(number, flush=True)
"""


def step(text: str) -> None:
    print(f"\n* {text}")


def put_and_read() -> None:
    step("put three messages; each is on disk when put returns")
    with rocketstore.open(STORE) as store:
        writer = store.writer("orders", queue_id=0)
        for number in (17, 18, 19):
            result = writer.put(b'{"id": %d}' % number, tags="paid", keys=f"o-{number}")
            print(f"  at {result.physical_offset}, {result.size} bytes, {result.durability}")
        step("read them back, by queue and by key")
        for message in store.consumer("orders", queue_id=0):
            print(f"  {message.queue_offset}: {message.body!r} {message.tags}")
        print(f"  key o-18: {store.query('orders', key='o-18')[0].body!r}")


def many() -> None:
    step("put 100,000 messages in batches of 1,000")
    with rocketstore.open(STORE) as store:
        writer = store.writer("orders", queue_id=0)
        bodies = [b"x" * 100] * 1000
        started = time.perf_counter()
        for _ in range(100):
            writer.put_batch(bodies)
        seconds = time.perf_counter() - started
        print(f"  {100_000 / seconds:,.0f} messages/s, each batch synced before it returned")


def kill_and_recover() -> None:
    step("a second process puts one message after the other; kill -9 it")
    command = [sys.executable, "-c", WRITER, str(STORE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = 0
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged >= 500:
                break
        os.kill(process.pid, signal.SIGKILL)
    print(f"  it had been told of {acknowledged} or more")
    step("open again: recovery, then count")
    with rocketstore.open(STORE) as store:
        found = store.max_queue_offset("ticks", 0)
        print(f"  {found} are there")
        assert found >= acknowledged


def main() -> None:
    shutil.rmtree(STORE, ignore_errors=True)
    put_and_read()
    many()
    kill_and_recover()


if __name__ == "__main__":
    main()
