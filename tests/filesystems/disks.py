"""Small disks with real file systems: an image under a loop device, or memory. Always put away again."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

__all__ = ["CUT_KINDS", "KINDS", "Disk", "disk", "need"]

#: Smallest sizes that each file system's tools accept, with some room.
MIB: Final = 1 << 20
SIZES: Final = {
    "ext3": 48 * MIB,
    "ext4": 48 * MIB,
    "xfs": 300 * MIB,
    "btrfs": 128 * MIB,
    "tmpfs": 8 * MIB,
}
#: ext3 cannot allocate blocks (K-04), and has a test of its own for it.
KINDS: Final = ("ext4", "xfs", "btrfs", "tmpfs")
#: These can be shut down like a machine that loses its power: nothing in memory reaches the disk.
CUT_KINDS: Final = ("ext4", "xfs")
MAKERS: Final = {
    "ext3": ["mkfs.ext3", "-q", "-F", "-m", "0"],
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard", "-m", "0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}
PACKAGES: Final = {
    "ext3": "e2fsprogs",
    "ext4": "e2fsprogs",
    "xfs": "xfsprogs",
    "btrfs": "btrfs-progs",
}
#: FS_IOC_SHUTDOWN, and its mode that does not even write the journal of what was not synced.
SHUTDOWN: Final = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125
NO_LOG_FLUSH: Final = 2
PATIENCE_S: Final = 10.0


def need(kind: str) -> None:
    """Skips where this file system cannot be made or mounted."""
    for tool in ("losetup", "mount", "umount"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    maker = MAKERS.get(kind)
    if maker and shutil.which(maker[0]) is None:
        pytest.skip(f"needs {maker[0]} (Debian: {PACKAGES[kind]})")
    if kind not in Path("/proc/filesystems").read_text().split():
        loaded = subprocess.run(["modprobe", kind], capture_output=True, check=False)
        if loaded.returncode != 0:
            pytest.skip(f"this kernel has no {kind}")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout.strip()


class Disk:
    """A file system mounted at `path`. `image`: the file below its loop device, made unless it is there."""

    def __init__(
        self,
        root: Path,
        kind: str,
        *,
        size: int | None = None,
        image: Path | None = None,
        options: str = "",
    ) -> None:
        self.kind = kind
        self.path = root / kind
        self.size = size or SIZES[kind]
        self.device = ""
        self._options = options
        self._mounted = False
        self._image = image or root / f"{kind}.image"
        self.path.mkdir(parents=True)
        try:
            if kind != "tmpfs":
                self._make()
            self.mount()
        except BaseException:
            self.remove()
            raise

    def _make(self) -> None:
        if not self._image.exists():
            with self._image.open("wb") as file:
                file.truncate(self.size)
        self.device = attach(self._image)
        run(*MAKERS[self.kind], self.device)

    def mount(self) -> None:
        if self.kind == "tmpfs":
            run("mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", str(self.path))
        else:
            options = ["-o", self._options] if self._options else []
            run("mount", "-t", self.kind, *options, self.device, str(self.path))
        self._mounted = True

    def unmount(self, patience_s: float = PATIENCE_S) -> None:
        """Waits for what still has files open here: a killed process may take a moment. A closed store of
        this process keeps its mappings until the collector has gone over it."""
        gc.collect()
        deadline = time.monotonic() + patience_s
        while True:
            done = subprocess.run(
                ["umount", self.path], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                self._mounted = False
                return
            assert "busy" in done.stderr and time.monotonic() < deadline, done.stderr
            time.sleep(0.02)

    def remount(self) -> None:
        self.unmount()
        self.mount()

    def cut_power(self) -> None:
        """From here on nothing reaches the disk, neither data nor journal, and every call says EIO."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def fill(self) -> Path:
        """Takes all room there is; removing the file that is returned gives it back. A store that was closed
        and is garbage maps files that have no name any more: their room is taken, too, or the collector
        gives it back at any time later."""
        gc.collect()
        ballast = self.path / "ballast"
        fd = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for step in (MIB, 1 << 16, 1 << 12):
                while took(fd, step):
                    pass
        finally:
            os.close(fd)
        return ballast

    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def remove(self) -> None:
        """Leaves neither mount nor device, whatever happened before. A test that failed may hold mappings
        in its traceback: then the mount goes from the tree now, and with them for good."""
        if self._mounted:
            try:
                self.unmount(0.5)
            except AssertionError:
                subprocess.run(["umount", "-l", self.path], check=False)
        self._detach()
        with contextlib.suppress(OSError):
            self._image.unlink()

    def _detach(self) -> None:
        device, self.device = self.device, ""
        if device:
            subprocess.run(["losetup", "-d", device], check=False)


def took(fd: int, size: int) -> bool:
    """Whether so many bytes went to the file, and have their place: some file systems look for it late."""
    try:
        whole = os.write(fd, bytes(size)) == size
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return whole


def attach(image: Path) -> str:
    """A loop device over `image`; another process may take the one that is free, so try again."""
    for _ in range(20):
        done = subprocess.run(
            ["losetup", "-f", "--show", image], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return done.stdout.strip()
        time.sleep(0.05)
    pytest.skip(f"no loop device to be had here: {done.stderr.strip()}")


@contextlib.contextmanager
def disk(root: Path, kind: str, *, size: int | None = None, options: str = "") -> Iterator[Disk]:
    """A new disk of this kind below `root`; gone afterwards, also when the test fails."""
    need(kind)
    made = Disk(root, kind, size=size, options=options)
    try:
        yield made
    finally:
        made.remove()
