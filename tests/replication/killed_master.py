"""A master for slaves of RocketMQ in a process of its own, which is killed while it puts.

`python -m tests.replication.killed_master DIR ADDRESS`, with options of the store as JSON in the
environment: prints `open END` with the end of the log that it found, then puts until it is killed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore.replication import Master
from rocketstore.replication.master.service import MasterService
from tests.support.waiting import pause, wait_until

__all__ = ["putting_master"]

OPTIONS = "KILLED_MASTER_OPTIONS"
LARGEST_BODY = 1000
#: Between two puts while no slave follows, which may take seconds to come again.
ALONE_S = 0.02


@contextmanager
def putting_master(path: Path, address: str, options: dict[str, Any]) -> Iterator[int]:
    """A master that puts; where its log ended when it had opened. Killed at the end of the block."""
    out = path.with_suffix(".out")
    command = [sys.executable, "-m", "tests.replication.killed_master", str(path), address]
    with (
        open(out, "wb") as file,
        subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, OPTIONS: json.dumps(options)}
        ) as process,
    ):
        try:
            wait_until(
                lambda: out.read_text().endswith("\n") or process.poll() is not None,
                lambda: out.read_text(),
            )
            assert out.read_text().startswith("open "), out.read_text()
            yield int(out.read_text().split()[1])
            assert process.poll() is None, out.read_text()
        finally:
            process.kill()
            process.wait()


def _run(path: Path, address: str) -> None:
    rng = random.Random()
    master = Master(
        listen=address, protocol="rocketmq", heartbeat_every=timedelta(milliseconds=100)
    )
    options = json.loads(os.environ[OPTIONS])
    with rocketstore.open(path, replication=master, **options) as store:
        print(f"open {store.end_offset}", flush=True)
        writer = store.writer("Orders", queues=3)
        body, service = rng.randbytes(LARGEST_BODY), store._open().guests.made(MasterService)
        assert service is not None
        while True:
            writer.put(body[: rng.randrange(LARGEST_BODY)], tags="a", keys=f"k{rng.randrange(99)}")
            if not any(one.asked is not None for one in service.replicas):
                pause(ALONE_S)


if __name__ == "__main__":
    _run(Path(sys.argv[1]), sys.argv[2])
