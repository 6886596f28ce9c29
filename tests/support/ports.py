"""Ports of loopback."""

from __future__ import annotations

import socket

__all__ = ["free_port"]


def free_port() -> int:
    """One that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
