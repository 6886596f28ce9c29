"""Recovery of a store of some GiB that another program crashed in, killed three times on its way."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rocketstore

pytestmark = pytest.mark.proof

GIB = int(os.environ.get("ROCKETSTORE_RECOVERY_GIB", "2"))
KILLS = 3
BODY = bytes(1000)
#: A killed attempt does this much of the log again at the most: a step of the scan, or one of dispatch.
AGAIN_BYTES = 512 << 20
ANONYMOUS_BYTES_MAX = 64 << 20

RECOVER = """
import json, re, sys, time
import rocketstore

def anonymous_bytes():
    with open("/proc/self/status") as status:
        return int(re.search(r"RssAnon:\\s+([0-9]+) kB", status.read())[1]) << 10

before = anonymous_bytes()
most = 0

def show(what, done, total):
    global most
    most = max(most, anonymous_bytes() - before)
    print(json.dumps([what, done, total]), flush=True)

began = time.monotonic()
with rocketstore.open(sys.argv[1], on_recovery=show) as store:
    report = store.recovery
    print(json.dumps({
        "open_s": time.monotonic() - began,
        "scan_s": report.seconds,
        "scanned": report.scanned_bytes,
        "end": report.end,
        "lost": report.lost,
        "anonymous": most,
        "messages": sum(store.max_queue_offset(t, q) for t in store.topics(system=True) for q in store.queues(t)),
    }), flush=True)
"""


@pytest.fixture
def crashed(tmp_path: Path) -> Iterator[Path]:
    """As RocketMQ leaves a log when it dies: no mark of ours, no queues, no index."""
    free = shutil.disk_usage(tmp_path).free
    if free < (GIB << 30) * 3 // 2:
        pytest.skip(f"{GIB} GiB of log need {GIB * 3 // 2} GiB of disk, {free >> 30} are free")
    path = tmp_path / "store"
    with rocketstore.open(path, durability="os", index_enabled=False) as store:
        writers = [store.writer(f"orders-{n}") for n in range(8)]
        batch = [BODY] * 500
        while store.end_offset < GIB << 30:
            for writer in writers:
                writer.put_batch(batch, tags="paid", keys="k")
    for part in ("rocketstore", "consumequeue", "index"):
        shutil.rmtree(path / part, ignore_errors=True)
    (path / "checkpoint").unlink()
    (path / "lock").write_bytes(b"lock")
    (path / "abort").touch()
    yield path
    shutil.rmtree(path)


@contextmanager
def recovering(path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RECOVER, os.fspath(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run_until_killed(path: Path, what: str, share: float) -> int:
    """Kills a recovery that is at `what` and has done this share of the log; how much it had done. How far it
    comes in a time is the machine's affair."""
    with recovering(path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            at, done, _ = json.loads(line)
            if at == what and done >= share * (GIB << 30):
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL, "it was done before it was killed"
    return int(done)


@pytest.mark.timeout(1200)
def test_killed_three_times(crashed: Path, rng: random.Random) -> None:
    """D-23: no attempt starts over, the last one has everything; memory does not grow with the log."""
    log = sum(file.stat().st_size for file in (crashed / "commitlog").iterdir())
    for number in range(KILLS):
        what, share = "log", rng.uniform(0.05, 0.3)
        if number == KILLS - 1 and rng.random() < 0.5:
            what, share = "queues and index", 0.0
        done = run_until_killed(crashed, what, share)
        print(f"killed at {what}: {done:,} bytes further")
    scanned_before = progress_of(crashed)
    with recovering(crashed) as process:
        assert process.stdout is not None
        outcome = json.loads(process.stdout.read().splitlines()[-1])
    print(f"of {log:,} bytes of log {scanned_before:,} were done; the last attempt: {outcome}")
    assert not outcome["lost"]
    assert outcome["messages"] * len(BODY) > (GIB << 30) * 3 // 4
    assert scanned_before > 0
    assert outcome["scanned"] <= outcome["end"] - scanned_before
    assert outcome["anonymous"] <= ANONYMOUS_BYTES_MAX
    if outcome["scanned"]:
        print(f"scanned and made durable: {outcome['scanned'] / outcome['scan_s'] / 1e9:.2f} GB/s")


def progress_of(path: Path) -> int:
    """Up to where the killed attempts had checked the log."""
    found = json.loads((path / "rocketstore" / "recovery.json").read_text())
    assert isinstance(found["end"], int)
    return found["end"]


@pytest.mark.timeout(1200)
def test_rate(crashed: Path) -> None:
    """Prints it; how fast a disk is belongs to no assertion."""
    with recovering(crashed) as process:
        assert process.stdout is not None
        outcome = json.loads(process.stdout.read().splitlines()[-1])
    size, seconds = outcome["scanned"], outcome["scan_s"]
    print(
        f"{size:,} bytes scanned and made durable in {seconds:.1f} s, "
        f"{size / seconds / 1e9:.2f} GB/s; open with queues for "
        f"{outcome['messages']:,} messages in {outcome['open_s']:.1f} s; "
        f"{outcome['anonymous'] >> 20} MiB of memory"
    )
    assert not outcome["lost"]
    assert outcome["anonymous"] <= ANONYMOUS_BYTES_MAX
