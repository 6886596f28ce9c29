"""Links of guests in this process, and guests in others, for tests."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import StoreLockedError
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.sharing.link import HostLink
from tests.process.other_process import open_small
from tests.support.small_store import engine_of

__all__ = ["GUEST", "RULE", "asks", "become", "in_thread", "linked", "soon"]

#: Opens, and says "open"; then says its process whenever it is asked, as a call of its guest is answered.
GUEST: Final = """
store = rocketstore.open(path, **options)
say("open")
while told():
    store.retention.rule  # asks the host
    say(str(store.stats().host_pid))
store.close()
say("closed")
"""

#: A call that changes nothing.
RULE: Final = "StoreRetention.rule"
Become = Callable[[StoreLock | None], WritingEngine]


def become(root: Path) -> Become:
    """Takes the lock at once, and serves."""

    def take(lock: StoreLock | None) -> WritingEngine:
        if lock is not None:
            lock.release()
        if StoreLock.probe(StoreLayout(root)) is not None:
            raise StoreLockedError(os.fspath(root), "another")
        return engine_of(open_small(root, "r+", shared="host"))

    return take


@contextlib.contextmanager
def linked(root: Path, take: Become | None = None) -> Iterator[HostLink]:
    link = HostLink(StoreLayout(root), take)
    assert link.connect(10.0)
    link.start()
    try:
        yield link
    finally:
        link.close()


def asks(link: HostLink, limit_s: float = 60.0) -> int:
    """Asks the host something; the process that has answered."""
    link.call(RULE, {}, limit_s=limit_s, again=True)
    return link.host_pid


def soon() -> int:
    return time.monotonic_ns() + 60_000_000_000


def in_thread(act: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(act())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found
