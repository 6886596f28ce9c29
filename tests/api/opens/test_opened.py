"""`rocketstore.opened`: the store that this process has open, whoever holds it."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, StoreClosedError, StoreLockedError
from tests.support.small_store import open_small


def test_a_store_that_no_variable_holds_is_found(root: Path) -> None:
    held = [open_small(root)]
    held[0].writer("t").put(b"1")
    with pytest.warns(ResourceWarning, match="no variable holds it"):
        held.clear()
    gc.collect()
    with pytest.raises(StoreLockedError, match=r"rocketstore.opened\(path\) gives it"):
        open_small(root)
    with rocketstore.opened(root) as again:
        again.writer("t").put(b"2")
        assert [m.body for m in again.consumer("t")] == [b"1", b"2"]
    open_small(root, "r+").close()


def test_two_variables_of_one_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with open_small(tmp_path / "s") as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        other = rocketstore.opened(tmp_path / "link")
        other.writer("t").put(b"x")
        del other  # the store is still held: no warning
        gc.collect()
        assert store.end_offset > 0
        rocketstore.opened(os.fspath(tmp_path / "s")).close()
        assert store.closed


def test_what_is_not_open_is_not_opened(tmp_path: Path) -> None:
    wrong: Any
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(StoreClosedError, match="no store open for writing there"):
            rocketstore.opened(wrong)
    open_small(tmp_path / "s").close()
    with (
        open_small(tmp_path / "s", "r"),  # a reader holds nothing that another open would want
        pytest.raises(StoreClosedError),
    ):
        rocketstore.opened(tmp_path / "s")
    for wrong in (None, "", 3):
        with pytest.raises(ConfigError, match="path = "):
            rocketstore.opened(wrong)


def test_a_forked_child_has_no_store_open(tmp_path: Path) -> None:
    with open_small(tmp_path / "s"):
        child = os.fork()
        if not child:
            try:
                rocketstore.opened(tmp_path / "s")
            except StoreClosedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
