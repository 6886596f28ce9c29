"""An open that Ctrl-C comes to leaves nothing behind: no thread, no lock, and a store that opens again."""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType

import pytest

from rocketstore.engine import engine, open_marks, phases, wiring, writing_engine
from rocketstore.engine import open as open_module
from rocketstore.log import worker
from tests.process.other_process import numbers, open_small
from tests.support.striking import at_each_line


def ctrl_c() -> None:
    raise KeyboardInterrupt


def workers() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("rocketstore-")]


# A strike inside of `Store.__del__`, which asks the engine whether it is closed, is no one's to catch.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "module",
    [open_module, phases, open_marks, wiring, engine, writing_engine, worker],
    ids=lambda m: m.__name__,
)
def test_ctrl_c_at_any_line_of_an_open(tmp_path: Path, module: ModuleType) -> None:
    """D-12 D-36: the lock goes behind the threads; an old flusher would write into the files of whoever opens next."""
    with open_small(tmp_path) as store:
        store.writer("Orders").put(b"0:")

    def work() -> None:
        store = None
        try:
            store = open_small(tmp_path)
            store.close()
        except KeyboardInterrupt:
            if store is not None:
                store.close()
            assert workers() == []

    assert at_each_line(module, work, ctrl_c) > 10
    with open_small(tmp_path) as store:
        assert numbers(store) == [0]
