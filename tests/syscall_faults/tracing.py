"""Faults from outside: strace fails one system call of a thread, also those that Python itself makes.

The table knows the calls of the native code only; names, listings and threads are asked for by Python.
"""

from __future__ import annotations

import ctypes
import re
import select
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

__all__ = ["OUTSIDE", "SYSCALLS", "calls_in", "injected", "missing", "trace", "wait_to_be_traced"]

#: The site of a case that strace makes happen.
OUTSIDE: Final = "strace"
#: What each answers; `when` counts the calls of one thread.
SYSCALLS: Final = {
    "newfstatat": "EACCES EIO ENOMEM",
    "fstat": "EIO",
    "getdents64": "EIO ENOMEM",
    "openat": "EMFILE EIO ENOSPC",
    "read": "EIO EINTR",
    "readlink": "EACCES",
    "clone3": "EAGAIN ENOMEM",
    "fsync": "EIO",
    "fdatasync": "EIO",
    "msync": "EIO",
    "pwritev2": "EIO ENOSPC",
    "pwrite64": "EIO ENOSPC",
    "fallocate": "ENOSPC",
    "ftruncate": "EFBIG",
    "linkat": "EDQUOT",
    "renameat2": "EIO",
    "unlinkat": "EROFS",
    "mkdirat": "ENOSPC",
    "madvise": "EAGAIN",
}
PR_SET_PTRACER: Final = 0x59616D61
PR_SET_PTRACER_ANY: Final = -1
#: strace knows a call of its own architecture only; these may have another name elsewhere.
_CALL: Final = re.compile(r"^(\d+) +(\w+)\(")


def missing() -> str:
    """Why nothing can be traced here; empty when it can."""
    if shutil.which("strace") is None:
        return "needs strace"
    tried = subprocess.run(
        ["strace", "-qq", "-o", "/dev/null", "-e", "trace=newfstatat", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if tried.returncode == 0 else f"strace does not work here: {tried.stderr[:200]}"


def trace(pid: int, log: Path, inject: str | None) -> subprocess.Popen[str]:
    """strace, attached to a process and its threads; `inject` as its manual says."""
    wanted = ",".join(f"?{name}" for name in SYSCALLS)
    command = ["strace", "-f", "-p", str(pid), "-o", str(log), "-e", f"trace={wanted}"]
    if inject is not None:
        command += ["-e", f"inject={inject}"]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    assert "attached" in said, said
    return tracer


def calls_in(log: Path) -> Counter[str]:
    """The most calls of each kind that one thread made."""
    made: Counter[tuple[str, str]] = Counter()
    for line in log.read_text(errors="replace").splitlines():
        if found := _CALL.match(line):
            made[found[1], found[2]] += 1
    most: Counter[str] = Counter()
    for (_, name), count in made.items():
        most[name] = max(most[name], count)
    return most


def injected(log: Path) -> bool:
    return "(INJECTED" in log.read_text(errors="replace")


def wait_to_be_traced(go: int) -> None:
    """Lets a process trace us that is not our parent, where only parents may, and waits for it."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)
    select.select([go], [], [])  # no call that a fault is meant for
