"""Limits of a process that its system sets: which one is used up, and what raises it.

The kernel says "Cannot allocate memory" where a process has all the mappings that it may have.
Errors of system calls say more: this module looks at what is in use. It imports no native module,
which may find no memory.
"""

from __future__ import annotations

import errno
import os
from typing import Final

__all__ = ["USUAL_MAPPINGS", "explained", "mappings_allowed", "used_up"]

#: Mappings that Linux allows a process where nobody sets `vm.max_map_count`.
USUAL_MAPPINGS: Final = 65_530
#: A call that fails had been about to make this many mappings, at the most; count.
MAPPINGS_A_CALL: Final = 128
#: Said where not even the look at what is used up gets memory.
NOT_LOOKED: Final = (
    "this process gets no memory at all: it has used up its mappings (raise vm.max_map_count by "
    "sysctl -w), its address space (ulimit -v), or its system's memory"
)
#: A read of a file of /proc gives no more, bytes.
PAGE: Final = 4096


def mappings_allowed() -> int:
    """Mappings that this process may have."""
    try:
        with open("/proc/sys/vm/max_map_count", "rb", buffering=0) as file:
            return int(file.read(PAGE))
    except (OSError, ValueError):
        return USUAL_MAPPINGS


def explained(number: int) -> str:
    """What the system says of an errno, and the limit that is used up."""
    said, limit = os.strerror(number), used_up(number)
    return f"{said}: {limit}" if limit else said


def used_up(number: int, *, thread: bool = False) -> str:
    """What a system call that failed with this errno had no more of, and what raises the limit.

    Empty where no limit that is known is used up. `thread`: the call starts a thread.
    """
    try:
        if number == errno.EMFILE:
            return _files()
        if number == errno.ENFILE:
            return "the system has no more open files: raise fs.file-max"
        if number == errno.ENOMEM or thread:
            return _mappings() or _address_space() or (_threads() if thread else "")
    except MemoryError:
        return NOT_LOOKED
    except (OSError, ValueError) as error:  # the words are not worth an error of their own
        return NOT_LOOKED if getattr(error, "errno", None) == errno.ENOMEM else ""
    return ""


def _files() -> str:
    return (
        f"this process may have {os.sysconf('SC_OPEN_MAX')} open files (RLIMIT_NOFILE): raise it "
        "by ulimit -n, or by LimitNOFILE of its service"
    )


def _mappings() -> str:
    allowed, used, page = mappings_allowed(), 0, bytearray(PAGE)
    with open("/proc/self/maps", "rb", buffering=0) as file:
        while read := file.readinto(page):
            used += page.count(b"\n", 0, read)
    if used + MAPPINGS_A_CALL < allowed:
        return ""
    return (
        f"this process has {used} of the {allowed} mappings that it may have: raise "
        "vm.max_map_count by sysctl -w, or give the process fewer files to map"
    )


def _address_space() -> str:
    with open("/proc/self/limits", "rb") as file:
        most = file.read().partition(b"Max address space")[2].split()[0]
    if most == b"unlimited":
        return ""
    with open("/proc/self/statm", "rb") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    return (
        f"this process uses {used} bytes of the {int(most)} of address space that it may have "
        "(RLIMIT_AS): raise it by ulimit -v, or make the files of the store smaller"
    )


def _threads() -> str:
    most = os.sysconf("SC_CHILD_MAX")
    own = f"RLIMIT_NPROC of {most} (ulimit -u), " if most >= 0 else ""
    return (
        f"the system gives this process no more threads: raise what limits it, {own}pids.max of "
        "its control group (TasksMax of its service), or kernel.threads-max"
    )
