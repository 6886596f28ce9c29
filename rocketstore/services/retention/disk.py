"""How far the file system of a log is used, and which removed segments processes still hold.

A file that is removed keeps its blocks while a process has it mapped: a message that was read, a
reader in another process. To remove more because these bytes did not come back would end with the
whole log. So they count as free already, and the processes are named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.services.retention.plan import DiskUse

__all__ = ["RemovedFiles", "disk_use"]

_SHOWN: Final = os.path.isdir("/proc")
#: What /proc writes after the path of a file that has no name.
_DELETED: Final = " (deleted)"


def disk_use(directory: Path, held: int = 0) -> DiskUse:
    """As RocketMQ counts it: used ÷ (used + usable by this user)."""
    found = os.statvfs(directory)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    return DiskUse(used + found.f_bavail * found.f_frsize, used, held)


@dataclass(frozen=True, slots=True)
class _File:
    device: str
    inode: int
    size: int


class RemovedFiles:
    """Segments that this process removed and some process has mapped still, as far as /proc shows
    it."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, int], int] = {}

    @staticmethod
    def look(files: Iterable[MappedFile]) -> list[_File]:
        """Files that are about to be removed."""
        states = []
        for file in files:
            with contextlib.suppress(OSError):
                states.append((os.stat(file.path), file.size))
        shown = _shown_devices(state for state, _ in states)
        return [_File(shown[state.st_dev], state.st_ino, size) for state, size in states]

    def add(self, files: Iterable[_File]) -> None:
        """Files that were removed."""
        self._files |= {(file.device, file.inode): file.size for file in files}

    def held(self, present: Iterable[MappedFile]) -> tuple[int, tuple[int, ...]]:
        """Bytes of removed files that are still mapped, and the processes. `present`: files of the
        log, which may have got the number of a removed one."""
        for file in self.look(present):
            self._files.pop((file.device, file.inode), None)
        if not self._files:
            return 0, ()
        by_process = _mapped(self._files)
        kept = {key for keys in by_process.values() for key in keys}
        self._files = {key: self._files[key] for key in kept}
        return sum(self._files.values()), tuple(sorted(by_process))


def _shown_devices(states: Iterable[os.stat_result]) -> dict[int, str]:
    """`st_dev` → the device that /proc shows for mapped files of this file system: on some, as
    btrfs, that is another one."""
    wanted = {(state.st_ino, state.st_dev) for state in states}
    inodes = {str(inode) for inode, _ in wanted}
    found = {device: f"{os.major(device):02x}:{os.minor(device):02x}" for _, device in wanted}
    for fields in _mappings("self"):
        if fields[4] in inodes and not fields[5].endswith(_DELETED):
            with contextlib.suppress(OSError):
                state = os.stat(fields[5])
                if (state.st_ino, state.st_dev) in wanted:
                    found[state.st_dev] = fields[3]
    return found


def _mapped(wanted: Iterable[tuple[str, int]]) -> dict[int, set[tuple[str, int]]]:
    """Process id → which of these files it has mapped. Processes of other users are not seen."""
    keys = {(device, str(inode)): (device, inode) for device, inode in wanted}
    found: dict[int, set[tuple[str, int]]] = {}
    for name in _processes():
        for fields in _mappings(name):
            # A file that has a name is another one, which got the number of a removed one.
            if (fields[3], fields[4]) in keys and fields[5].endswith(_DELETED):
                found.setdefault(int(name), set()).add(keys[fields[3], fields[4]])
    return found


def _mappings(process: str) -> Iterator[list[str]]:
    """Range, rights, offset, device, inode and path of each file that a process has mapped, as far
    as this user may see it."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/maps", encoding="utf-8",
                                            errors="surrogateescape") as lines:  # fmt: skip
        for line in lines:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) > 5:
                yield fields


def _processes() -> list[str]:
    """The numbers of all processes; none where the system does not show them."""
    return [name for name in os.listdir("/proc") if name.isdecimal()] if _SHOWN else []
