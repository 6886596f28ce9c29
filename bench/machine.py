"""The machine and the file system, without which figures mean little."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import Any, Final

import rocketstore

__all__ = ["file_system_of", "machine", "machine_line"]

_MOUNTS: Final = Path("/proc/self/mountinfo")


def file_system_of(directory: Path, mounts: str | None = None) -> str:
    """Name of the kind of file system, as the table of mounts says it ("ext4"); "" where it does
    not.

    `mounts`: the text of that table; None: this process's own.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""
    path = Path(os.path.realpath(directory))
    found, depth = "", -1
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) < 5 or not after:
            continue
        place = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        # Of two mounts at one place the later one is on top.
        if path.is_relative_to(place) and len(place.parts) >= depth:
            found, depth = after.split(" ")[0], len(place.parts)
    return found


def machine(directory: Path = Path()) -> dict[str, Any]:
    """Facts for the foot of a table and for its JSON file; `directory`: where the files are."""
    try:
        cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        cpus = ""
    model = re.search(r"^model name\s*:\s*(.+)$", cpus, re.MULTILINE)
    return {
        "cpu": model[1] if model else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "file_system": file_system_of(directory),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "rocketstore": rocketstore.__version__,
        "when": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def machine_line(facts: dict[str, Any]) -> str:
    """The facts of `machine` as text; the load is that of the last minute, when they were taken."""
    return (
        f"{facts['cpus']} CPUs ({facts['cpu']}), {facts['memory_bytes'] / (1 << 30):.1f} GiB, "
        f"Linux {facts['kernel'].split('-')[0]}, {facts['file_system'] or 'unknown file system'}, "
        f"load {facts['load']:.1f} at the beginning, Python {facts['python']}, "
        f"rocketstore {facts['rocketstore']}"
    )
