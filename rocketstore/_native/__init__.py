"""The native part. Importing it on a system it is not made for is refused with a reason."""

from __future__ import annotations

import os
import re
import struct
import sys

__all__: list[str] = []

#: F_OFD locks, MADV_WIPEONFORK, RWF_DSYNC and renameat2 all exist from here on.
KERNEL_MIN = (4, 18)
MACHINES = ("x86_64", "aarch64")
PAGE_SIZE_MIN, PAGE_SIZE_MAX = 4 << 10, 64 << 10


def refusal(system: str, release: str, machine: str, bits: int, page_size: int) -> str | None:
    """Why rocketstore cannot run on such a system, None when it can.

    Args:
        system: as `sys.platform`.
        release: version of the kernel, as `uname -r`.
        machine: as `uname -m`.
        bits: of a pointer.
        page_size: of memory, in bytes.
    """
    if system != "linux":
        return f"rocketstore runs on Linux only, not on {system}"
    version = re.match(r"(\d+)\.(\d+)", release)
    if version is None or (int(version[1]), int(version[2])) < KERNEL_MIN:
        return f"rocketstore needs Linux {KERNEL_MIN[0]}.{KERNEL_MIN[1]} or newer, not {release!r}"
    if bits != 64:
        return f"rocketstore needs a 64-bit Python, this one has {bits} bits"
    if machine not in MACHINES:
        return f"rocketstore runs on {' and '.join(MACHINES)}, not on {machine}"
    if not PAGE_SIZE_MIN <= page_size <= PAGE_SIZE_MAX:
        return f"rocketstore needs memory pages of 4 to 64 KiB, not of {page_size} bytes"
    return None


def _check_platform() -> None:
    linux = sys.platform == "linux"
    found = os.uname() if linux else None
    why = refusal(
        sys.platform,
        found.release if found else "",
        found.machine if found else "",
        struct.calcsize("P") * 8,
        os.sysconf("SC_PAGESIZE") if linux else 0,
    )
    if why is not None:
        raise ImportError(why)


_check_platform()
