"""A disk whose device fails on command: a file system over a loop device over a file of our own."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.filesystems.disks import SIZES, Disk, need

__all__ = ["BlockDevice", "failing_disk"]

PATIENCE_S = 20.0


class BlockDevice:
    """The program behind the device."""

    def __init__(self, root: Path, size: int) -> None:
        self._directory = root / "device"
        self._directory.mkdir()
        image = root / "device.image"
        with image.open("wb") as file:
            file.truncate(size)
        self.file = self._directory / "disk"
        program = Path(__file__).with_name("block_file.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(self._directory), str(image)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        deadline = time.monotonic() + PATIENCE_S
        while not self.file.exists():
            assert self._process.poll() is None, "the FUSE program ended"
            assert time.monotonic() < deadline, "no FUSE file in time"
            time.sleep(0.02)

    def tell(self, command: str) -> int:
        """Gives a command; how many requests failed so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        return int(self._process.stdout.readline())

    def fail(self, what: str, pattern: bytes = b"") -> None:
        """From now on requests of this kind fail: `write` and `read` with these bytes, or `flush`."""
        self.tell(f"{what} {pattern.hex()}".strip())

    def heal(self) -> int:
        """Nothing fails any more; how many requests did."""
        failed = self.tell("failed")
        self.tell("heal")
        return failed

    def close(self) -> None:
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                subprocess.run(["umount", "-l", self._directory], check=False)
        if self._process.stdout is not None:
            self._process.stdout.close()
        subprocess.run(["umount", "-l", self._directory], capture_output=True, check=False)


@contextlib.contextmanager
def failing_disk(root: Path, kind: str) -> Iterator[tuple[Disk, BlockDevice]]:
    """A new disk over a device that works until it is told otherwise."""
    need(kind)
    try:
        importlib.import_module("mfusepy")
    except (ImportError, OSError) as error:  # the latter without the library of the system
        pytest.skip(f"needs mfusepy and libfuse (Debian: fuse3): {error}")
    if not Path("/dev/fuse").exists():
        pytest.skip("this kernel has no FUSE")
    root.mkdir(parents=True, exist_ok=True)
    device = BlockDevice(root, SIZES[kind])
    try:
        made = Disk(root, kind, image=device.file)
        try:
            yield made, device
        finally:
            device.tell("heal")
            made.remove()
    finally:
        device.close()
