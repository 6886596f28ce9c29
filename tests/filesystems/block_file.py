"""A program: one file in a FUSE directory, to put a loop device over, that fails on command.

    python block_file.py DIRECTORY IMAGE

Commands come as lines on standard input, each is answered by a line:
    write HEX | read HEX   requests with these bytes in them fail with EIO from now on
    flush                  so do flushes of the disk
    heal                   nothing fails any more
    failed                 how many requests failed since the last command that made some fail
When the input ends the program ends too, and the directory is empty again.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from typing import Any

import mfusepy

NAME = "/disk"


class BlockFile(mfusepy.Operations):  # type: ignore[misc]
    """Requests of the loop device, passed on to the image unless they are to fail."""

    use_ns = True

    def __init__(self, image: str) -> None:
        self._fd = os.open(image, os.O_RDWR)
        self._size = os.fstat(self._fd).st_size
        self._fails = ("", b"")
        self._failed = 0

    # ---- commands ----

    def obey(self, line: str) -> str:
        word, _, argument = line.partition(" ")
        if word != "failed":
            self._fails = (word, bytes.fromhex(argument))
            self._failed = 0
        return str(self._failed)

    def _check(self, what: str, data: bytes) -> None:
        kind, pattern = self._fails
        if kind == what and pattern in data:
            self._failed += 1
            raise mfusepy.FuseOSError(errno.EIO)

    # ---- requests ----

    def getattr(self, path: str, fh: Any = None) -> dict[str, Any]:
        if path == "/":
            return {"st_mode": 0o40700, "st_nlink": 2}
        if path != NAME:
            raise mfusepy.FuseOSError(errno.ENOENT)
        return {"st_mode": 0o100600, "st_nlink": 1, "st_size": self._size}

    def readdir(self, path: str, fh: Any) -> list[str]:
        return [".", "..", NAME[1:]]

    def open(self, path: str, info: Any) -> int:
        info.direct_io = 1  # else the kernel keeps what it has read, and no read can fail
        return 0

    def read(self, path: str, size: int, offset: int, fh: Any) -> bytes:
        data = os.pread(self._fd, size, offset)
        self._check("read", data)
        return data

    def write(self, path: str, data: bytes, offset: int, fh: Any) -> int:
        self._check("write", data)
        return os.pwrite(self._fd, data, offset)

    def fsync(self, path: str, datasync: int, fh: Any) -> int:
        self._check("flush", b"")
        return 0

    def fallocate(self, path: str, mode: int, offset: int, length: int, fh: Any) -> int:
        raise mfusepy.FuseOSError(errno.EOPNOTSUPP)


def listen(block_file: BlockFile, directory: str) -> None:
    for line in sys.stdin:
        print(block_file.obey(line.strip()), flush=True)
    subprocess.run(["umount", "-l", directory], check=False)
    os._exit(0)


def main() -> None:
    directory, image = sys.argv[1:]
    block_file = BlockFile(image)
    threading.Thread(target=listen, args=(block_file, directory), daemon=True).start()
    mfusepy.FUSE(block_file, directory, foreground=True, nothreads=True, raw_fi=True)


if __name__ == "__main__":
    main()
