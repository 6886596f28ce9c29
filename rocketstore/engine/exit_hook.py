"""Closes the stores that are still open when the interpreter ends.

The checkpointer of each store closes it. So a disk that hangs delays neither the other stores nor,
for longer than `LONGEST_S`, the end of the process. The next open recovers such a store, as after a
crash.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Protocol

from rocketstore._native.os import syscalls
from rocketstore._native.sync.futex import EventCount
from rocketstore.log.layout.paths import StoreLayout

__all__ = ["close_all", "forget", "open_at", "remember"]

logger = logging.getLogger(__name__)

#: Longest wait at exit, seconds, for all stores together; a disk that hangs must not keep the
#: process.
LONGEST_S = 30.0


class OpenEngine(Protocol):
    """An engine that is open for writing, as the exit sees it."""

    @property
    def path(self) -> str: ...

    @property
    def layout(self) -> StoreLayout: ...

    @property
    def closed(self) -> bool: ...

    def close_at_exit(self) -> bool:
        """Asks the checkpointer to close the store. False: it has ended, since the store has failed
        or was closed."""


#: Engines that are open for writing or about to close, each with the token of its process. An
#: engine stays here for the exit after the program dropped its `Store`.
_open: dict[OpenEngine, int] = {}
_changed = EventCount()


def remember(engine: OpenEngine) -> None:
    _open[engine] = syscalls.process_token()


def forget(engine: OpenEngine) -> None:
    """Called when the engine is closed. Idempotent."""
    _open.pop(engine, None)
    _changed.notify()


def open_at(path: str) -> OpenEngine | None:
    """The engine that this process has open for writing in a directory, by whatever name."""
    for engine, token in _open.copy().items():
        if engine.closed or syscalls.forked_since(token):
            continue
        try:
            if os.path.samefile(engine.layout.root, path):
                return engine
        except OSError:  # one of the two is not there
            continue
    return None


def close_all() -> None:
    """Closes all open stores and waits for them, no longer than `LONGEST_S`. `rocketstore` calls it
    at exit: the import registers it."""
    deadline = time.monotonic() + LONGEST_S
    for engine, token in _open.copy().items():
        if syscalls.forked_since(token):  # by a fork that Python has not seen
            forget(engine)
            continue
        asked = engine.close_at_exit()
        if not asked and not engine.closed:
            forget(engine)  # it has failed: the next open recovers it
        # One that is closed is being closed, by a thread that is waited for, too.
    while True:
        seen = _changed.count
        left_ms = int((deadline - time.monotonic()) * 1000)
        if not _open or left_ms <= 0:
            break
        _changed.wait(seen, left_ms)
    for engine in list(_open):
        logger.error(
            "%s: not closed within %g s of the end of the process: the next open recovers it",
            engine.path,
            LONGEST_S,
        )


# The stores are the parent's (D-35).
os.register_at_fork(after_in_child=_open.clear)
