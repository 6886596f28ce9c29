"""How fast a copy gets a log, and what puts wait for that wait for it: `python -m bench.copies`.

catch-up: a copy in another process gets a log of `--mib` over loopback, checks each record, appends,
dispatches and syncs it. In turns with that, another process receives the same bytes by plain `recv`
calls, writes them to files of the same size and syncs those. The ratio is that of the rates of one round.

puts: 64 in flight with `replicas(2)` and such a copy, in turns with the same at `disk` without one, and
with the plainest copy that syncs (`plain_copy.py`): what this machine gives such puts. Both stores sync
on one disk, and share its processors.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rocketstore
from bench.plain_copy import keep
from bench.replication import Jobs, median_ratio, print_jobs, puts_in_turns, until
from rocketstore.replication import Master, Replica

SEGMENT_BYTES = 256 << 20
READ_BYTES = 1 << 20
BODY_BYTES = 4096


# ---- the other process ----


def follow(address: str, directory: str) -> None:
    """A copy, until its standard input ends. Says when it is open."""
    with rocketstore.open(
        directory, commit_log_file_size_bytes=SEGMENT_BYTES, replication=Replica(master=address)
    ):
        print("open", flush=True)
        sys.stdin.read()


def save(address: str, directory: str) -> None:
    """Reads until the end into files, syncs each of them once it is whole, and answers one byte."""
    host, port = address.rsplit(":", 1)
    buffer = memoryview(bytearray(READ_BYTES))
    os.mkdir(directory)
    with socket.create_connection((host, int(port))) as sock:
        print("open", flush=True)
        left = int.from_bytes(sock.recv(8, socket.MSG_WAITALL), "big")
        while left:
            fd = os.open(f"{directory}/{left}", os.O_CREAT | os.O_WRONLY)
            os.posix_fallocate(fd, 0, SEGMENT_BYTES)
            room = min(left, SEGMENT_BYTES)
            left -= room
            while room:
                got = sock.recv_into(buffer[: min(room, READ_BYTES)])
                os.write(fd, buffer[:got])
                room -= got
            os.fdatasync(fd)
            os.close(fd)
        sock.sendall(b"x")


@contextlib.contextmanager
def other_process(job: str, address: str, directory: Path) -> Iterator[None]:
    """It has begun, and ends with the block; then its files are gone."""
    words = [sys.executable, "-m", "bench.copies", f"--{job}", address, "--into", str(directory)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == b"open\n"
        yield
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()
        shutil.rmtree(directory)


# ---- catching up ----


def catch_up(root: Path, mib: int, rounds: int) -> dict[str, Any]:
    ours: list[float] = []
    plain: list[float] = []
    with rocketstore.open(
        root / "store",
        commit_log_file_size_bytes=SEGMENT_BYTES,
        durability="os",
        replication=Master(listen="127.0.0.1:0"),
    ) as store:
        writer = store.writer("bench")
        batch = [os.urandom(BODY_BYTES)] * 512
        while store.end_offset < mib << 20:
            writer.put_batch(batch)
        store.flush(600)
        for _ in range(rounds):
            plain.append(_saved_plainly(root, store.end_offset))
            ours.append(_copied(store, root))
    return {
        "promise": "synced by the copy",
        "gb_per_s": round(statistics.median(ours), 3),
        "plain_gb_per_s": round(statistics.median(plain), 3),
        "ratio": median_ratio(ours, plain),
    }


def _copied(store: rocketstore.Store, root: Path) -> float:
    """GB a second, from the connection to the acknowledgement of the last byte."""
    end, began = store.end_offset, time.monotonic()

    def over() -> bool:
        nonlocal began
        peers = store.replication.peers
        if not peers:
            began = time.monotonic()
        return bool(peers) and peers[0].synced >= end

    with other_process("follow", store.replication.address, root / "copy"):
        until(over)
        took = time.monotonic() - began
    until(lambda: not store.replication.peers)
    return end / took / 1e9


def _saved_plainly(root: Path, end: int) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with other_process("save", address, root / "plain"):
            sock, _ = listener.accept()
            with sock:
                began = time.monotonic()
                sock.sendall(end.to_bytes(8, "big"))
                left = end
                for path in sorted((root / "store" / "commitlog").iterdir()):
                    with (
                        open(path, "rb") as file,
                        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
                        memoryview(mapped) as view,
                        view[: min(left, len(view))] as part,
                    ):
                        sock.sendall(part)
                        left -= len(part)
                    if not left:
                        break
                sock.recv(1)
                return end / (time.monotonic() - began) / 1e9


# ---- puts ----


def puts(root: Path, seconds: float, rounds: int) -> dict[str, Any]:
    with rocketstore.open(
        root / "store",
        commit_log_file_size_bytes=SEGMENT_BYTES,
        prewrite=True,
        replication=Master(listen="127.0.0.1:0"),
    ) as store:

        @contextlib.contextmanager
        def replica() -> Iterator[None]:
            with other_process("follow", store.replication.address, root / "copy"):
                until(lambda: any(not one.lag_bytes for one in store.replication.peers))
                yield
            until(lambda: not store.replication.peers)

        @contextlib.contextmanager
        def plain_copy() -> Iterator[None]:
            address = store.replication.address or ""
            words = [sys.executable, "-m", "bench.copies", "--keep", address]
            process = subprocess.Popen([*words, "--into", str(root / "plain")])
            try:
                until(
                    lambda: any(one.synced == store.end_offset for one in store.replication.peers)
                )
                yield
            finally:
                process.terminate()
                process.wait()
            until(lambda: not store.replication.peers)

        return puts_in_turns(store, replica, seconds, rounds, plain_copy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["catch-up", "puts"])
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    parser.add_argument("--save", help=argparse.SUPPRESS)
    parser.add_argument("--keep", help=argparse.SUPPRESS)
    parser.add_argument("--into", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.follow:
        return follow(given.follow, given.into)
    if given.save:
        return save(given.save, given.into)
    if given.keep:
        return keep(given.keep, given.into, SEGMENT_BYTES)
    jobs: Jobs = {
        "catch-up": lambda root: catch_up(root, given.mib, given.rounds),
        "puts": lambda root: puts(root, given.seconds, given.rounds),
    }
    return print_jobs(jobs, given.only, given.dir)


if __name__ == "__main__":
    main()
