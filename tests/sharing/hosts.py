"""Who holds a shared store: what the kernel says, not what a process tells."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

__all__ = ["host_pid"]


def host_pid(path: Path) -> int | None:
    """The process that listens at the socket of a store; None where none does."""
    directory = os.open(path / "rocketstore", os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(5)
            link.connect(f"/proc/self/fd/{directory}/host.sock")
            credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int(struct.unpack("3i", credentials)[0])
    except (ConnectionError, FileNotFoundError, TimeoutError, BlockingIOError):
        return None
    finally:
        os.close(directory)
