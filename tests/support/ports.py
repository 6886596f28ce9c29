"""Ports of loopback for what begins to listen later, or never does."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["free_address", "free_port"]

#: From where the system takes the ports of outgoing connections, and of binds to port 0.
RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
LEAST, MOST = 10_000, 65_535
#: Names that say which ports tests have; each ends with the process that has it.
_taken: list[socket.socket] = []


def free_port(also: Sequence[int] = ()) -> int:
    """One that nothing takes before it is used, unless it asks for that very number. The ports at
    the distances `also` are free, too."""
    candidates = _candidates()
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        wanted = [port, *(port + distance for distance in also)]
        if all(map(_is_free, wanted)) and all(map(_take, wanted)):
            return port
    raise OSError("no free port")


def free_address() -> str:
    """Of loopback, with a port as of `free_port`."""
    return f"127.0.0.1:{free_port()}"


def _candidates() -> list[int]:
    """All that the system gives nobody by itself; all there are where it keeps none back."""
    low, high = (int(word) for word in RANGE.read_text().split())
    kept_back = [*range(LEAST, low), *range(max(high + 1, LEAST), MOST + 1)]
    return kept_back or [*range(LEAST, MOST + 1)]


def _is_free(port: int) -> bool:
    """Whether nothing has it, at any address."""
    with socket.socket() as tried, contextlib.suppress(OSError):
        tried.bind(("", port))
        return True
    return False


def _take(port: int) -> bool:
    """Whether no other test has been given it, in this process or in one that still runs."""
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0rocketstore-tests-{port}")
    except OSError:
        name.close()
        return False
    _taken.append(name)
    return True
