"""Memory that the host of a virtual machine has given already: what a machine of its own has always.

A host takes memory back that its guest does not use, and gives it again page by page when it is used, each for ten
times what such a page costs otherwise. Where that is not what a bench measures, another process holds memory that
was given, and lets go of it as the kernel takes it: `with given_memory(8 << 30): …`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["given_memory", "take"]

CHUNK_BYTES = 128 << 20
#: So much more than at the beginning the kernel has free: what was let go last is used first.
AHEAD_BYTES = 256 << 20
#: Of what is available at the beginning, that nobody holds.
SPARED_BYTES = 2 << 30
LOOK_S = 0.01


@contextlib.contextmanager
def given_memory(wanted_bytes: int) -> Iterator[None]:
    """Within it the kernel finds `wanted_bytes` of memory, or what the machine has, without its host."""
    held = min(wanted_bytes, _meminfo("MemAvailable") - SPARED_BYTES)
    command = [sys.executable, "-m", "bench.memory", str(max(0, held)), str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        try:
            if keeper.stdout.readline() != b"ready\n":
                raise MemoryError(f"{held} bytes of memory cannot be held")
            yield
        finally:
            keeper.kill()


def take(wanted_bytes: int) -> mmap.mmap:
    """Memory of which the host has given every page; in huge ones, since the large folios of a file come from
    the same free lists."""
    memory = mmap.mmap(-1, wanted_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    for page in range(0, wanted_bytes, mmap.PAGESIZE):
        memory[page] = 1
    return memory


def keep(held_bytes: int, parent: int) -> None:
    """Takes the memory, says so with a line, and lets it go as it is needed."""
    chunks = [take(CHUNK_BYTES) for _ in range(held_bytes // CHUNK_BYTES)]
    least = _meminfo("MemFree") + AHEAD_BYTES
    print("ready", flush=True)
    while chunks and os.getppid() == parent:
        if _meminfo("MemFree") < least:
            chunks.pop().close()
        else:
            time.sleep(LOOK_S)


def _meminfo(name: str) -> int:
    """Bytes of a line of /proc/meminfo."""
    found = re.search(rf"^{name}:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) << 10 if found else 0


if __name__ == "__main__":
    keep(int(sys.argv[1]), int(sys.argv[2]))
