"""Sinks that wait in a thread, and threads that are held at one step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Staged

__all__ = ["PATIENCE_S", "Asker", "Gate"]

PATIENCE_S = 120.0


class Asker(threading.Thread):
    """Commits in a thread of its own; `result` gives what came of it."""

    def __init__(self, root: Path, version: int, files: list[Staged], **given: Any) -> None:
        super().__init__(daemon=True)
        self._work = lambda: commit(str(root), "query", version, files, **given)
        self._found: list[Any] = []
        self.start()

    def run(self) -> None:
        try:
            self._found.append(self._work())
        except SparkFaceError as error:
            self._found.append(error)

    def result(self) -> Any:
        self.join(PATIENCE_S)
        [found] = self._found
        if isinstance(found, SparkFaceError):
            raise found
        return found


class Gate:
    """Holds a thread at one step until it is opened."""

    def __init__(self, step: str) -> None:
        self._step = step
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, step: str) -> None:
        if step == self._step:
            self.reached.set()
            assert self.open.wait(PATIENCE_S)
