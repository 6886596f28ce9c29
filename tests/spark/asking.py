"""Sinks that wait in a thread, and hosts whose threads are held, or die, at one step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rocketstore.spark.sink import serve
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Staged
from rocketstore.spark.sink.store_access import Step

__all__ = ["PATIENCE_S", "Gate", "asked", "at_steps"]

PATIENCE_S = 120.0


def asked(root: Path, version: int, files: list[Staged], **given: Any) -> Future[bool]:
    """Commits in a thread of its own."""
    return ThreadPoolExecutor(1).submit(commit, str(root), "query", version, files, **given)


class Gate:
    """Holds a thread at one step until it is opened."""

    def __init__(self, step: str) -> None:
        self._step = step
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, step: str) -> None:
        if step == self._step:
            self.reached.set()
            assert self.open.wait(PATIENCE_S)


@contextlib.contextmanager
def at_steps(on_step: Step) -> Iterator[None]:
    """What this process does for sinks of others calls `on_step`, also before and after it does it."""

    def stepped(act: Callable[..., Any], **given: Any) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            on_step("taken")
            done = act(*arguments, **named, **given)
            on_step("done")
            return done

        return run

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serve, "commit_to", stepped(serve.commit_to, on_step=on_step))
        patched.setattr(serve, "store_offsets", stepped(serve.store_offsets))
        yield
