"""What replicas cost a master, compared with the same without them: `python -m bench.replication`.

catch-up: a log of `--mib` is sent over loopback to another process, which reads it and throws it away;
compared with the same files, mapped, by plain `send` calls to a reader of the same kind. The ratio is that of
the rates of one round.

puts: 64 threads, tickets and tasks that put into a "disk" store, and the same with `replicas(2)`, in
turns. The replica is another process, which acknowledges what it reads: what is measured is the master.

lag: batches of a millisecond's worth at `--lag-mib-s`; the time from the end of a put until the other
process has its last byte, by the one clock of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import rocketstore.aio
from bench.measure import machine
from rocketstore.replication import Master
from rocketstore.replication.master.service import MasterService, begin_master
from rocketstore.replication.protocol.classic import HEADER, REPORT

SEGMENT_BYTES = 64 << 20
IN_FLIGHT = 64
NOTE = struct.Struct("<dq")
READ_BYTES = 1 << 20
Jobs = dict[str, Callable[[Path], dict[str, Any]]]


# ---- the other process ----


def receive(address: str, notes: str) -> None:
    """A slave that keeps nothing. With `notes` it writes there when it had how much."""
    host, port = address.rsplit(":", 1)
    buffer = memoryview(bytearray(READ_BYTES))
    seen: list[tuple[float, int]] = []
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(REPORT.pack(0))
        while _read(sock, buffer[: HEADER.size]):
            offset, left = HEADER.unpack(buffer[: HEADER.size])
            end = offset + left
            while left and (got := sock.recv_into(buffer[: min(left, READ_BYTES)])):
                left -= got
            if left:
                break
            if notes:
                seen.append((time.monotonic(), end))
            sock.sendall(REPORT.pack(end))
    if notes:
        Path(notes).write_bytes(b"".join(NOTE.pack(*one) for one in seen))


def swallow(address: str) -> None:
    """Reads until the end, and answers one byte."""
    host, port = address.rsplit(":", 1)
    buffer = memoryview(bytearray(READ_BYTES))
    with socket.create_connection((host, int(port))) as sock:
        left = int.from_bytes(sock.recv(8, socket.MSG_WAITALL), "big")
        while left and (got := sock.recv_into(buffer)):
            left -= got
        sock.sendall(b"x")


def _read(sock: socket.socket, buffer: memoryview) -> bool:
    got = 0
    while got < len(buffer):
        more = sock.recv_into(buffer[got:])
        if not more:
            return False
        got += more
    return True


@contextmanager
def other_process(job: str, address: str, notes: str = "") -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "bench.replication", f"--{job}", address, "--notes", notes]
    process = subprocess.Popen(words)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def replica_of(master: MasterService, notes: str = "") -> Iterator[None]:
    with other_process("receive", master.address, notes):
        until(lambda: bool(master.replicas) and master.replicas[0].asked is not None)
        yield
    until(lambda: not master.replicas)


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.0005)


def served(store: rocketstore.Store) -> MasterService:
    return begin_master(store, Master(listen="127.0.0.1:0", protocol="rocketmq"))


# ---- catching up ----


def catch_up(root: Path, mib: int, rounds: int) -> dict[str, Any]:
    ours: list[float] = []
    plain: list[float] = []
    options = {"commit_log_file_size_bytes": 256 << 20, "durability": "os"}
    with rocketstore.open(root / "store", **options) as store:
        writer = store.writer("bench")
        batch = [bytes(4096)] * 512
        while store.end_offset < mib << 20:
            writer.put_batch(batch)
        store.flush(600)
        master = served(store)
        for _ in range(rounds):
            plain.append(_copied_plainly(root / "store" / "commitlog", store.end_offset))
            ours.append(_caught_up(master, store.end_offset))
    return {
        "gb_per_s": round(statistics.median(ours), 3),
        "plain_gb_per_s": round(statistics.median(plain), 3),
        "ratio": median_ratio(ours, plain),
    }


def _caught_up(master: MasterService, end: int) -> float:
    with replica_of(master):
        began = time.monotonic() - master.replicas[0].connected_s
        until(lambda: master.replicas[0].synced >= end)
        return end / (time.monotonic() - began) / 1e9


def _copied_plainly(directory: Path, end: int) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with other_process("swallow", f"127.0.0.1:{port}"):
            sock, _ = listener.accept()
            with sock:
                began = time.monotonic()
                sock.sendall(end.to_bytes(8, "big"))
                left = end
                for path in sorted(directory.iterdir()):
                    with open(path, "rb") as file:
                        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                        view = memoryview(mapped)[: min(left, len(mapped))]
                        sock.sendall(view)
                        left -= len(view)
                        view.release()
                        mapped.close()
                    if not left:
                        break
                sock.recv(1)
                return end / (time.monotonic() - began) / 1e9


# ---- puts ----


def threads_side(store: rocketstore.Store, level: Any, seconds: float) -> float:
    writer = store.writer("bench", queue_id=0, durability=level)
    counts = [0] * IN_FLIGHT
    end = time.monotonic() + seconds

    def work(at: int) -> None:
        while time.monotonic() < end:
            writer.put(BODY)
            counts[at] += 1

    threads = [threading.Thread(target=work, args=(at,)) for at in range(IN_FLIGHT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def tickets_side(store: rocketstore.Store, level: Any, seconds: float) -> float:
    writer = store.writer("bench", queue_id=1, durability=level)
    end = time.monotonic() + seconds
    flying: deque[rocketstore.Ticket] = deque()
    count = 0
    while time.monotonic() < end:
        flying.append(writer.submit(BODY))
        if len(flying) >= IN_FLIGHT:
            flying.popleft().result()
            count += 1
    for ticket in flying:
        ticket.result()
    return count / seconds


def tasks_side(store: rocketstore.Store, level: Any, seconds: float) -> float:
    async def run() -> float:
        async with rocketstore.aio.attach(store) as attached:
            writer = attached.writer("bench", queue_id=2, durability=level)
            end = time.monotonic() + seconds
            counts = [0] * IN_FLIGHT

            async def work(at: int) -> None:
                while time.monotonic() < end:
                    await writer.put(BODY)
                    counts[at] += 1

            await asyncio.gather(*(work(at) for at in range(IN_FLIGHT)))
            return sum(counts) / seconds

    return asyncio.run(run())


SIDES = {"threads": threads_side, "tickets": tickets_side, "tasks": tasks_side}
BODY = bytes(1024)


def puts(root: Path, seconds: float, rounds: int) -> dict[str, Any]:
    options = {"commit_log_file_size_bytes": SEGMENT_BYTES, "prewrite": True}
    with rocketstore.open(root / "store", **options) as store:
        master = served(store)

        @contextmanager
        def replica() -> Iterator[None]:
            with replica_of(master):
                until(lambda: master.replicas[0].synced >= store.end_offset)
                yield

        return puts_in_turns(store, replica, seconds, rounds)


Copy = Callable[[], AbstractContextManager[None]]


def puts_in_turns(
    store: rocketstore.Store,
    replica: Copy,
    seconds: float,
    rounds: int,
    plain_copy: Copy | None = None,
) -> dict[str, Any]:
    """At "disk" without a replica, and at "replicas(2)" with one that has caught up; and with a
    plain copy, which is as fast as one can be here."""
    found: dict[str, Any] = {}
    for name, side in SIDES.items():
        side(store, "disk", seconds / 4)  # warm
        alone: list[float] = []
        two: list[float] = []
        most: list[float] = []
        for _ in range(rounds):
            alone.append(side(store, "disk", seconds))
            with replica():
                two.append(side(store, "replicas(2)", seconds))
            if plain_copy is not None:
                with plain_copy():
                    most.append(side(store, "replicas(2)", seconds))
        found[name] = {
            "disk_per_s": round(statistics.median(alone)),
            "replicas_per_s": round(statistics.median(two)),
            "ratio": median_ratio(two, alone),
        }
        if most:
            found[name] |= {
                "plain_copy_per_s": round(statistics.median(most)),
                "plain_copy_ratio": median_ratio(most, alone),
                "of_plain_copy": median_ratio(two, most),
            }
    return found


def median_ratio(ours: list[float], others: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, others, strict=True)), 3)


# ---- lag ----


def lag(root: Path, mib_s: int, seconds: float) -> dict[str, Any]:
    options = {"commit_log_file_size_bytes": 256 << 20, "durability": "os"}
    notes = root / "notes"
    ends: list[tuple[float, int]] = []
    body = bytes(4096)
    batch = [body] * max(1, (mib_s << 20) // 1000 // len(body))
    with rocketstore.open(root / "store", **options) as store:
        master = served(store)
        writer = store.writer("bench")
        with replica_of(master, os.fspath(notes)):
            began = time.monotonic()
            due = began
            while due < began + seconds:
                ends.append((0.0, writer.put_batch(batch).end_offset))
                ends[-1] = (time.monotonic(), ends[-1][1])
                due += len(batch) * len(body) / (mib_s << 20)
                time.sleep(max(0.0, due - time.monotonic()))
            took = time.monotonic() - began
            until(lambda: master.replicas[0].synced >= store.end_offset)
            store.close()  # the other process ends by itself
            until(notes.exists)
            time.sleep(0.5)
    seen = list(NOTE.iter_unpack(notes.read_bytes()))
    offsets = [offset for _, offset in seen]
    lags = sorted(max(0.0, seen[bisect_left(offsets, end)][0] - at) * 1000 for at, end in ends)
    return {
        "mib_per_s": round(ends[-1][1] / took / 2**20),
        "p50_ms": round(lags[len(lags) // 2], 3),
        "p99_ms": round(lags[len(lags) * 99 // 100], 3),
        "longest_ms": round(lags[-1], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lag-mib-s", type=int, default=200)
    parser.add_argument("--only", choices=["catch-up", "puts", "lag"])
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--receive", help=argparse.SUPPRESS)
    parser.add_argument("--swallow", help=argparse.SUPPRESS)
    parser.add_argument("--notes", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.receive:
        return receive(given.receive, given.notes)
    if given.swallow:
        return swallow(given.swallow)
    jobs: Jobs = {
        "catch-up": lambda root: catch_up(root, given.mib, given.rounds),
        "puts": lambda root: puts(root, given.seconds, given.rounds),
        "lag": lambda root: lag(root, given.lag_mib_s, 2 * given.seconds),
    }
    return print_jobs(jobs, given.only, given.dir)


def print_jobs(jobs: Jobs, only: str | None, directory: Path) -> None:
    """What the jobs find, each in a directory of its own. `only`: None for all."""
    found: dict[str, Any] = {"machine": machine(directory)}
    for name, job in jobs.items():
        if only in (None, name):
            root = Path(tempfile.mkdtemp(prefix="replication-", dir=directory))
            try:
                found[name] = job(root)
            finally:
                shutil.rmtree(root, ignore_errors=True)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
