"""What the file system of a store allows (D-39)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rocketstore._native.os import syscalls

__all__ = ["FileSystem", "file_system"]


@dataclass(frozen=True, slots=True)
class FileSystem:
    """A kind of file system.

    `mapped_writes`: storing into a mapping of preallocated blocks cannot fail. Where it can (copy
    on write on a full disk, a user-space server), only the buffered path may write. `network`:
    other machines may have the store mounted; our lock does not keep them out, and a sync may mean
    little.
    """

    name: str
    mapped_writes: bool = True
    network: bool = False


_COPY_ON_WRITE = {
    0x9123683E: "btrfs",
    0xCA451A4E: "bcachefs",
    0x2FC12FC1: "zfs",
    0x3434: "nilfs2",
}
_SERVED = {0x65735546: "fuse", 0x01021997: "9p", 0x786F4256: "vboxsf"}
_NETWORK = {
    0x6969: "nfs",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x517B: "smb",
    0x00C36400: "ceph",
    0x5346414F: "afs",
    0x6B414653: "afs",
    0x0BD00BD0: "lustre",
    0x01161970: "gfs2",
    0x7461636F: "ocfs2",
    0x73757245: "coda",
}
_LOCAL = {0xEF53: "ext4", 0x58465342: "xfs", 0xF2F52010: "f2fs"}
_LOCAL |= {0x01021994: "tmpfs", 0x858458F6: "ramfs"}


def file_system(path: Path) -> FileSystem:
    """The kind of file system of `path`. An unknown one counts as plain and local."""
    magic = syscalls.file_system_type(os.fspath(path))
    if magic in _COPY_ON_WRITE:
        return FileSystem(_COPY_ON_WRITE[magic], mapped_writes=False)
    if magic in _SERVED:
        return FileSystem(_SERVED[magic], mapped_writes=False)
    if magic in _NETWORK:
        return FileSystem(_NETWORK[magic], mapped_writes=False, network=True)
    return FileSystem(_LOCAL.get(magic, f"{magic:#x}"))
