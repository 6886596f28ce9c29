"""Kills writers at random points and compares what recovery finds with what was acknowledged."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import rocketstore
from rocketstore.cli.demo.results import Row
from rocketstore.cli.demo.writer import TOPIC, body

__all__ = ["kill_writers"]

#: A writer that has reported nothing for so long hangs.
PATIENCE_S: Final = 30.0
LONGEST_RUN_S: Final = 0.3
#: Every fifth writer is killed while it opens the store, which is while it recovers.
OPENING_EVERY: Final = 5


@dataclass(slots=True)
class Reports:
    """What one killed writer had reported."""

    acknowledged: int
    latencies_ns: list[int] = field(default_factory=list)


def kill_writers(
    path: Path, kills: int, random_source: random.Random, advance: Callable[[int], object]
) -> list[Row]:
    """Starts and kills `kills` writers in turn in `disk` and `os` mode; a row for each mode.

    Numbers go on from one writer to the next, so that what is in the topic must be 0, 1, 2, … up to
    at least the last that was acknowledged, and at most one more: the one that was being put.
    """
    rows = {mode: Row(f"kill -9, {mode} writer", mode) for mode in ("disk", "os")}
    count = 0
    for number in range(kills):
        mode = ("disk", "os")[number % 2]
        row = rows[mode]
        while_opening = number % OPENING_EVERY == OPENING_EVERY - 1
        began = time.monotonic()
        reports = _run_and_kill(path, mode, count, random_source, while_opening)
        row.seconds += time.monotonic() - began
        row.latencies_ns += reports.latencies_ns
        count = _check(path, row, count, count + reports.acknowledged)
        advance(1)
    return [row for row in rows.values() if row.recoveries_s]


def _run_and_kill(
    path: Path, mode: str, first: int, random_source: random.Random, while_opening: bool
) -> Reports:
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "rocketstore.cli.demo.writer"]
    command += [str(path), mode, str(first), str(write_end)]
    with subprocess.Popen(command, pass_fds=[write_end]) as child:
        os.close(write_end)
        try:
            text = _read_until_killed(child, read_end, random_source, while_opening)
        finally:
            child.kill()
            os.close(read_end)
    reports = Reports(0)
    # Each report is one write to a pipe, so that none can be torn.
    for line in text.splitlines()[1:]:
        number, latency_ns = map(int, line.split())
        if number != first + reports.acknowledged:
            raise RuntimeError(f"the writer reported {number} after {reports.acknowledged}")
        reports.acknowledged += 1
        reports.latencies_ns.append(latency_ns)
    return reports


def _read_until_killed(
    child: subprocess.Popen[bytes], read_end: int, random_source: random.Random, while_opening: bool
) -> bytes:
    """Reports of the child, which is killed a random time after the first that counts."""
    text = b""
    wanted = 1 if while_opening else 2
    run_s = random_source.uniform(0, 0.05 if while_opening else LONGEST_RUN_S)
    deadline = time.monotonic() + PATIENCE_S
    waiting = True
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([read_end], [], [], left)[0]:
            if waiting:
                raise TimeoutError(f"a writer reported nothing for {PATIENCE_S:.0f} s")
            break
        chunk = os.read(read_end, 1 << 16)
        if not chunk:
            raise RuntimeError(f"a writer ended by itself, exit code {child.wait()}")
        text += chunk
        if waiting and text.count(b"\n") >= wanted:
            waiting = False
            deadline = time.monotonic() + run_s
    child.kill()
    while chunk := os.read(read_end, 1 << 16):
        text += chunk
    return text


def _check(path: Path, row: Row, first: int, acknowledged: int) -> int:
    """Opens the store, which recovers it, and reads what is new; gives the number of the next
    message."""
    began = time.monotonic()
    with rocketstore.open(
        path, "r+", durability=cast("rocketstore.Durability", row.durability)
    ) as store:
        row.recoveries_s.append(time.monotonic() - began)
        end = store.max_queue_offset(TOPIC, 0)
        if end < acknowledged:
            row.lose(acknowledged - end, f"{acknowledged} acknowledged, {end} there after recovery")
        if end > acknowledged + 1:
            row.differ(end - acknowledged - 1, f"{end} there, {acknowledged + 1} were put")
        if end == first:
            return end
        number = first
        with store.consumer(TOPIC, queue_id=0, offset=first) as consumer:
            for message in consumer:
                if message.queue_offset != number or message.body != body(number):
                    row.differ(1, f"message {number} is not what was put")
                number += 1
                row.messages += 1
                row.bytes += len(message.body)
        if number != end:
            row.lose(end - number, f"{end} in the queue, {number} could be read")
    return end
