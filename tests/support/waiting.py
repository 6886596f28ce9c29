"""Waiting for what another thread or process does; the time only ends a test that fails."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["pause", "wait_until"]

PATIENCE_S = 120.0
#: Seconds between two looks: short beside anything that is waited for.
LOOK_S = 0.002


def wait_until(
    condition: Callable[[], bool],
    why: Callable[[], str] = lambda: "",
    patience_s: float = PATIENCE_S,
) -> None:
    """Returns when the condition is true. `why` says more when it never is."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen {why()}".rstrip()
        time.sleep(LOOK_S)


def pause(seconds: float) -> None:
    """Lets a random time pass before a fault strikes. Never a way to wait for something."""
    time.sleep(seconds)
