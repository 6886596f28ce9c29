"""The stores that this process holds for its guests: nobody has a `Store` of one.

A link that takes the lock of a store keeps it here. It closes with the last guest of that store in this
process, or once its log has failed: the next host recovers it, as a program does that opens its store again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from typing import TYPE_CHECKING, Protocol

from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = ["close_failed", "come", "go", "hold"]


class Link(Protocol):
    """A guest's link, as it is seen here."""

    @property
    def root(self) -> str:
        """The absolute path of the store."""

    def end(self) -> None:
        """No host is looked for any more."""


#: The links of this process that may hold a store, with its token at their birth, and the stores held for them.
_links: dict[Link, int] = {}
_held: dict[str, WritingEngine] = {}
_turn = SignalSafeLock("the guests of this process")


def come(link: Link) -> None:
    """A guest of this process begins, which may hold its store."""
    with _turn():
        _links[link] = syscalls.process_token()


def go(link: Link) -> None:
    """It has ended; the store of the last one is closed. Idempotent."""
    with _turn():
        _links.pop(link, None)
        engine = None if _is_shared(link.root) else _held.pop(link.root, None)
    if engine is not None:
        engine.close()


def hold(root: str, engine: WritingEngine) -> None:
    """Keeps a store, whose lock this process has just taken, as long as it has guests of it."""
    engine.handles += 1  # no `Store` of it warns
    with _turn():
        if _is_shared(root):
            _held[root] = engine
            return
    engine.close()


def close_failed(root: str) -> None:
    """Closes the store of this process if its log takes nothing any more."""
    engine = _held.get(root)
    if engine is not None and engine.commit_log.failure is not None:
        with contextlib.suppress(Exception):  # what has failed says so again
            engine.close()


def _is_shared(root: str) -> bool:
    return any(link.root == root for link in _links)


def _end_all() -> None:
    """At exit, before the stores close: nobody takes their locks again."""
    for link, token in _links.copy().items():
        if not syscalls.forked_since(token):
            link.end()


def _leave_in_child() -> None:
    global _turn
    _turn = SignalSafeLock("the guests of this process")
    _links.clear()
    _held.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_leave_in_child)
