"""The native part: memory, system calls, threads without the GIL, and the calls of `csrc`.

Six folders; a folder imports lower ones only (a cimport counts):
    os < format < sync < append < put, and dispatch above os, format and sync

The modules of a folder lie in one shared object, `<folder>/_modules.*.so`: Python itself looks for one file a
module, so a finder of ours loads `rocketstore._native.<folder>.<module>` out of it. The folder's `MODULES`
says which there are. `setup.py` builds them.

`rocketstore` and its folders import modules from here, the faces do not. Importing this package on a system
that it is not made for is refused with a reason.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from os import sysconf, uname  # `os` is the name of a folder here

__all__ = ["GROUPS"]

#: Folders, low to high.
GROUPS = ("os", "format", "sync", "append", "put", "dispatch")
#: Helpers of all modules, made by Cython.
SHARED = f"{__name__}.os._cython_shared"

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
    found = uname() if linux else None
    why = refusal(
        sys.platform,
        found.release if found else "",
        found.machine if found else "",
        struct.calcsize("P") * 8,
        sysconf("SC_PAGESIZE") if linux else 0,
    )
    if why is not None:
        raise ImportError(why)


class GroupFinder:
    """Finds a native module in the shared object of its folder."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        """None for all that is not listed in `MODULES` of a folder of this package."""
        folder, _, module = name.rpartition(".")
        if not path or folder.rpartition(".")[0] != __name__:
            return None
        if module not in sys.modules[folder].MODULES and name != SHARED:
            return None
        shared_object = f"{path[0]}/_modules{EXTENSION_SUFFIXES[0]}"
        loader = ExtensionFileLoader(name, shared_object)
        return spec_from_file_location(name, shared_object, loader=loader)


_check_platform()
sys.meta_path.append(GroupFinder)
