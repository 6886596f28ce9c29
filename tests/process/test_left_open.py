"""Stores that a program leaves open: what Python says when the last variable goes."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path

import pytest

import rocketstore
from tests.process.other_process import other_process
from tests.support.small_store import open_small


def warned(caught: list[warnings.WarningMessage]) -> list[str]:
    gc.collect()
    return [str(one.message) for one in caught if one.category is ResourceWarning]


#: In a process of its own: no one can close this store, whose threads run until the end.
LEAVE = """
import gc, warnings
store = rocketstore.open(path, **options)
writer = store.writer("t")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    del store
    gc.collect()
for one in caught:
    say(f"{one.category.__name__}: {one.message}")
say(str(writer.put(b"x").queue_offset))  # what has a part of it goes on
try:
    rocketstore.open(path, **options)
except rocketstore.StoreLockedError as error:
    say(str(error))
"""


def test_a_store_that_nobody_can_close_is_named(tmp_path: Path) -> None:
    with other_process(LEAVE, tmp_path) as process:
        said = process.line()
        assert said.startswith(f"ResourceWarning: {tmp_path}: this store was not closed")
        assert "close it, or open it in a with statement" in said
        assert process.line() == "0"
        assert "no variable holds" in process.line()
        process.ends()


def test_a_closed_store_a_reader_and_a_forked_child_are_not(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store = open_small(tmp_path)
        store.writer("t").put(b"x")
        child = os.fork()
        if child == 0:
            del store
            os._exit(len(warned(caught)))
        assert os.waitpid(child, 0)[1] == 0
        store.close()
        reader = open_small(tmp_path, "r")
        del store, reader
        with pytest.raises(TypeError, match="is opened by"):
            rocketstore.Store(None)  # type: ignore[arg-type]
        assert warned(caught) == []
