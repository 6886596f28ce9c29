"""An interrupt of `tools.rebuild`, wherever it comes: nobody works any more, and the store is what it was."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rocketstore import tools
from tests.api.tools.test_rebuild import filled, index_of, queues_of
from tests.support.small_store import SMALL, open_small


@pytest.fixture(autouse=True)
def no_look_at_checksums(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before the parts, and has an executor of its own, which ends before theirs begins."""
    module = sys.modules["rocketstore.tools.rebuild"]
    monkeypatch.setattr(module, "_check_checksums", lambda _: None)


def to_the_process() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def to_this_thread() -> None:
    """Like a signal that comes just before the thread of the caller waits, it ends none of its waits."""
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


@pytest.mark.parametrize("interrupt", [to_the_process, to_this_thread])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_stops_all_parts(
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    interrupt: Callable[[], None],
    root: Path,
) -> None:
    """At their next step, and not at their end; the store is the clean one that it was."""
    filled(root, rng, 200)
    before = queues_of(root), index_of(root)
    waited_for = threading.Event()
    steps: list[tuple[str, int, int]] = []

    def shutdown(threads: ThreadPoolExecutor, **options: Any) -> None:
        waited_for.set()
        real(threads, **options)

    def progress(what: str, done: int, total: int) -> None:
        steps.append((what, done, total))
        if len(steps) == 1:
            interrupt()
            assert waited_for.wait(20)

    real = ThreadPoolExecutor.shutdown
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", shutdown)
    monkeypatch.setattr("rocketstore.tools._rebuild.parts.STEP_BYTES", 1000)
    with pytest.raises(KeyboardInterrupt):
        tools.rebuild(root, workers=workers, progress=progress, **SMALL)
    monkeypatch.undo()
    assert len(steps) == 1
    assert not (root / "abort").exists()
    assert not (root / "rocketstore" / "rebuild").exists()
    assert (queues_of(root), index_of(root)) == before
    with open_small(root, "r+") as store:
        assert store.recovery.mode == "clean"


@pytest.mark.parametrize(("work", "place"), [("build_index", 1), ("build_part", 2)])
def test_a_thread_that_just_starts_is_waited_for(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, work: str, place: int, root: Path
) -> None:
    """Its executor does not know it then, and the place where it works is about to be removed."""
    filled(root, rng, 200)
    before = queues_of(root), index_of(root)
    begun, ended = threading.Event(), threading.Event()
    started: list[threading.Thread] = []

    def build(*arguments: Any) -> Any:
        begun.set()
        threading.Event().wait(0.3)  # longer than it takes not to wait for this
        ended.set()
        return real_build(*arguments)

    def start(thread: threading.Thread) -> None:
        real_start(thread)
        if "Executor" not in thread.name:
            return
        started.append(thread)
        if len(started) == place:
            assert begun.wait(20)
            raise KeyboardInterrupt

    module = sys.modules["rocketstore.tools.rebuild"]
    real_start, real_build = threading.Thread.start, getattr(module, work)
    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(module, work, build)
    with pytest.raises(KeyboardInterrupt):
        tools.rebuild(root, workers=1, **SMALL)
    assert ended.is_set()
    monkeypatch.undo()
    assert not (root / "rocketstore" / "rebuild").exists()
    assert (queues_of(root), index_of(root)) == before
    with open_small(root, "r+") as store:
        assert store.recovery.mode == "clean"
