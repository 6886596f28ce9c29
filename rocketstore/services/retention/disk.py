"""How far the file system of a log is used, and which removed segments processes still hold.

A file that is removed keeps its blocks while a process has it mapped: a message that was read, a
reader in another process. To remove more because these bytes did not come back would end with the
whole log. So they count as free already, and the processes are named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketstore.services.retention.plan import DiskUse

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile

__all__ = ["RemovedFiles", "disk_use"]

_SHOWN: Final = os.path.isdir("/proc")


def disk_use(directory: Path, held: int = 0) -> DiskUse:
    """As RocketMQ counts it: used ÷ (used + usable by this user)."""
    found = os.statvfs(directory)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    return DiskUse(used + found.f_bavail * found.f_frsize, used, held)


@dataclass(frozen=True, slots=True)
class _File:
    device: int
    inode: int
    size: int


class RemovedFiles:
    """Segments that this process removed and some process has mapped still, as far as /proc shows
    it."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], int] = {}

    @staticmethod
    def look(files: Iterable[MappedFile]) -> list[_File]:
        """Files that are about to be removed."""
        found = []
        for file in files:
            with contextlib.suppress(OSError):
                state = os.stat(file.path)
                found.append(_File(state.st_dev, state.st_ino, file.size))
        return found

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


def _mapped(wanted: Mapping[tuple[int, int], int]) -> dict[int, set[tuple[int, int]]]:
    """Process id → which of these files it has mapped. Processes of other users are not seen."""
    inodes = {str(inode): (device, inode) for device, inode in wanted}
    found: dict[int, set[tuple[int, int]]] = {}
    for name in _processes():
        with contextlib.suppress(OSError), open(f"/proc/{name}/maps", encoding="ascii",
                                                errors="replace") as lines:  # fmt: skip
            for line in lines:
                # Range, rights, offset, device, inode, path. The device of some file systems is
                # another one here than in `stat`, so the number of the file decides. A file that
                # has a name is another one, which got the number of a removed one.
                fields = line.rstrip().split(maxsplit=5)
                if len(fields) > 5 and fields[4] in inodes and fields[5].endswith(" (deleted)"):
                    found.setdefault(int(name), set()).add(inodes[fields[4]])
    return found


def _processes() -> list[str]:
    """The numbers of all processes; none where the system does not show them."""
    return [name for name in os.listdir("/proc") if name.isdecimal()] if _SHOWN else []
