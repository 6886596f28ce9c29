"""Instructions of one message, counted by valgrind's callgrind: `python -m bench.counted`.

Counts do not depend on what else the machine does. valgrind knows no carry-less multiplication of 256 bits,
so that the checksum kernel of 128 bits is counted; Python and the compiler count as well, so that numbers
compare only where both are the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COUNTED", "count", "counts"]

MESSAGES = 4000


@dataclass(frozen=True)
class Counted:
    """What is counted: everything inside the functions that `entry` matches, in all threads."""

    name: str
    entry: str
    work: str


PUT = "rs_writer_put"  # what a call comes to first
BATCH = "__pyx_pw_*Writer_*put_batch"
COUNTED = (
    Counted("put 100 B", PUT, "for _ in range(n): put(bytes_100)"),
    Counted("put 1 KiB", PUT, "for _ in range(n): put(bytes_1024)"),
    Counted("put 100 B, tags, key", PUT, "for _ in range(n): put(bytes_100, tags='a', keys='b')"),
    Counted("put_batch 100 B", BATCH, "for _ in range(n // 1000): batch([bytes_100] * 1000)"),
    Counted("dispatch 100 B", "__pyx_f_*DispatchLoop_walk", "batch([bytes_100] * n)"),
)

PROGRAM = """
import sys
import rocketstore
n, bytes_100, bytes_1024 = {messages}, bytes(100), bytes(1024)
with rocketstore.open(sys.argv[1], durability="os") as store:
    writer = store.writer("bench", queue_id=0)
    put, batch = writer.put, writer.put_batch
    {work}
    assert store.max_queue_offset("bench", 0) == n
"""


def count(what: Counted) -> int:
    """Instructions of one message of `what`. Needs valgrind."""
    with tempfile.TemporaryDirectory(prefix="counted-") as directory:
        out = Path(directory, "callgrind.out")
        subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                f"--toggle-collect={what.entry}",
                f"--callgrind-out-file={out}",
                sys.executable,
                "-c",
                PROGRAM.format(messages=MESSAGES, work=what.work),
                str(Path(directory, "store")),
            ],
            check=True,
            capture_output=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        total = re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.MULTILINE)
        assert total is not None, "callgrind wrote no total"
        return int(total[1]) // MESSAGES


def counts() -> dict[str, int]:
    """All of them; empty without valgrind."""
    if shutil.which("valgrind") is None:
        return {}
    return {what.name: count(what) for what in COUNTED}


if __name__ == "__main__":
    found = counts()
    for name, instructions in found.items():
        print(f"{name:24} {instructions:6} instructions a message")
    sys.exit(0 if found else "valgrind is not installed")
