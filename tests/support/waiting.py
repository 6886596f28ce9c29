"""Waiting for what another thread or process does; the time only ends a test that fails."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["wait_until"]

PATIENCE_S = 120.0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)
