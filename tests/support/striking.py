"""Signals that come at every line of a piece of work, one after the other."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

__all__ = ["at_each_line"]

WHICH = signal.SIGUSR1


def at_each_line(
    module: ModuleType, work: Callable[[], object], handle: Callable[[], object]
) -> int:
    """Does `work` again and again; each time one signal, whose handler is `handle`, comes before the next of the
    lines of `module` that the work goes through. How many lines those are.

    In the main thread. A handler that waits for its own thread is a test that runs into its time limit.
    """
    before = signal.signal(WHICH, lambda *_: handle())
    try:
        lines = 0
        while _lines_of(module, work, strike_at=lines + 1) > lines:
            lines += 1
        return lines
    finally:
        signal.signal(WHICH, before)


def _lines_of(module: ModuleType, work: Callable[[], object], strike_at: int) -> int:
    passed = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            passed += 1
            if passed == strike_at:
                signal.raise_signal(WHICH)
        return trace

    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(tracing)
    return passed
