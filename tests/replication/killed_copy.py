"""A copy in a process of its own, which is killed while it appends.

`python -m tests.replication.killed_copy DIR ADDRESS PROTOCOL`, with options of the store as JSON in
the environment: prints `open`, then `synced OFFSET` as more is on its disk, until it is killed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.replication import Replica
from tests.support.small_store import SMALL, log_bytes
from tests.support.waiting import pause, wait_until

__all__ = ["assert_prefix", "kill_a_copy"]

OPTIONS = "KILLED_COPY_OPTIONS"
#: Longest life after the first byte came, seconds.
LIFE_S = 0.15


def kill_a_copy(
    path: Path, address: str, protocol: str, rng: random.Random, options: dict[str, Any] = SMALL
) -> int:
    """Opens a copy, and kills its process a little after more was on its disk. Gives the last
    offset up to which it said so."""
    out = path.with_suffix(".out")
    command = [sys.executable, "-m", "tests.replication.killed_copy", str(path), address, protocol]
    with (
        open(out, "wb") as file,
        subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, OPTIONS: json.dumps(options)}
        ) as process,
    ):
        try:
            wait_until(
                lambda: "synced" in out.read_text() or process.poll() is not None,
                lambda: out.read_text(),
            )
            pause(rng.random() * LIFE_S)
            assert process.poll() is None, out.read_text()
        finally:
            process.kill()
            process.wait()
    # The last line may have been cut.
    said = [line.split() for line in out.read_text().splitlines(keepends=True) if "\n" in line]
    return max(int(words[1]) for words in said if words[0] == "synced")


def assert_prefix(copy: Path, master: Path, synced: int) -> None:
    """What a killed copy has is the master's, and all that was on its disk is there."""
    own, whole = log_bytes(copy), log_bytes(master)
    assert len(own) >= synced
    assert own[:synced] == whole[:synced]  # with the zeros of blanks
    assert whole.startswith(own.rstrip(b"\0"))


def _run(path: Path, address: str, protocol: Any) -> None:
    replica = Replica(master=address, protocol=protocol, reconnect_every=timedelta(milliseconds=20))
    options = json.loads(os.environ[OPTIONS])
    with rocketstore.open(path, replication=replica, **options) as store:
        print("open", flush=True)
        said = store.flushed_offset
        while store.replication.error is None:
            if store.flushed_offset > said:
                said = store.flushed_offset
                print(f"synced {said}", flush=True)
            pause(0.002)
        print(f"stopped {store.replication.error!r}", flush=True)


if __name__ == "__main__":
    _run(Path(sys.argv[1]), *sys.argv[2:])
