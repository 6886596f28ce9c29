"""Shards without Spark or Arrow, and a commit of them in a child process that dies at one step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import rocketstore
from rocketstore.spark.sink.shards import STAGED, Shard, commit_shards, shard_paths

__all__ = ["bodies_in", "killed_at", "make_shard"]


def make_shard(
    root: Path, run: str, partition: int, bodies: list[bytes], attempt: str = "a"
) -> Shard:
    """A store as a task leaves it."""
    name = f"{STAGED}/{run}/{partition:05d}-{attempt}"
    (root / name).mkdir(parents=True)
    small = {"commit_log_file_size_bytes": 64 << 10, "index_enabled": False}
    with rocketstore.open(root / name, durability="os", **small) as store:
        store.writer("t").put_batch(bodies)
        return Shard(name, len(bodies), store.end_offset)


def bodies_in(root: Path) -> list[list[bytes]]:
    """Of each shard that the manifest names, in its order."""
    found = []
    for path in shard_paths(str(root)) or []:
        with rocketstore.open(path, "r") as store:
            found.append([message.body for message in store.consumer("t")])
    return found


def killed_at(step: str, root: Path, run: str, shards: list[Shard], writer: str) -> bool:
    """Commits version 0 in a process that kills itself at `step`; False when it did not get there."""
    work = [step, str(root), run, [[s.name, s.rows, s.size] for s in shards], writer]
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(work)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def main(wanted: str, root: str, run: str, shards: list[tuple[str, int, int]], writer: str) -> None:
    def die(step: str) -> None:
        if step == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    commit_shards(root, run, [Shard(*shard) for shard in shards], writer=writer, on_step=die)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
