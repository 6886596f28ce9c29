"""Threads that are all started, and have to end."""

from __future__ import annotations

import threading

__all__ = ["LONG_MS", "joined"]

#: Longer than any test may take: a wait that lasts this long has lost a wake-up.
LONG_MS = 60_000


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_MS / 1000)
    assert not any(thread.is_alive() for thread in threads)
