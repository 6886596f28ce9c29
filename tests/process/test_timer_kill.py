"""A process that puts messages with a time of their own is killed again and again: each comes once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.small_store import open_small
from tests.support.waiting import wait_until

LIVES = 6
PROGRAM = """
import datetime, random, sys
from rocketstore.services.delay import offsets, timer_table
from tests.support.small_store import open_small

path, life, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = random.Random(seed)
offsets.SAVE_AFTER_S = rng.choice((0.0, 0.01, 1.0))
timer_table.RECENT, timer_table.LIKE = 8, 3
with open_small(path, durability="os") as store:
    writer, known = store.writer("orders"), []
    print("ready", flush=True)
    for n in range(1_000_000):
        after = datetime.timedelta(milliseconds=rng.randrange(1, 400))
        known.append(writer.put(b"%d:%d" % (life, n), deliver_after=after))
        print("put", n, flush=True)
        if n % 7 == 6:
            gone = rng.randrange(len(known))
            if store.delayed.cancel(known[gone]):
                print("cancelled", gone, flush=True)
"""


@pytest.mark.proof
def test_each_is_delivered_once(tmp_path: Path, random_seed: int) -> None:
    path, rng = tmp_path / "store", random.Random(random_seed)
    put, cancelled = set[bytes](), set[bytes]()
    for life in range(LIVES):
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path), str(life), str(rng.randrange(1 << 30))],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.05, 0.8))
        child.kill()
        told, _ = child.communicate()
        for line in told.splitlines(keepends=True):
            word, _, number = line.partition(" ")
            if line.endswith("\n"):
                (put if word == "put" else cancelled).add(b"%d:%d" % (life, int(number)))
    with open_small(path, durability="os") as store:
        wait_until(lambda: len(store.delayed) == 0)
        found = Counter(message.body for message in store.consumer("orders"))
    assert len(put) > 10
    assert not {body: count for body, count in found.items() if count > 1}
    assert not cancelled & found.keys()
    # One cancel of each life may be in the log without having been told.
    missing = Counter(body.partition(b":")[0] for body in put - cancelled - found.keys())
    assert all(count == 1 for count in missing.values()), missing
