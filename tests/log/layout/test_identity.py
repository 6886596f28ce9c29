"""Whether a reader lets go of the directories that it holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import rocketstore
from rocketstore.log.layout import identity
from rocketstore.log.layout.paths import StoreLayout


def test_a_close_that_fails_keeps_no_other_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rocketstore.open(tmp_path / "store"):
        pass
    before = set(os.listdir("/proc/self/fd"))
    held = identity.StoreIdentity(StoreLayout(tmp_path / "store"))
    assert len(set(os.listdir("/proc/self/fd")) - before) == 3
    close, failures = identity.syscalls.close, [1]

    def fails_once(fd: int) -> None:
        close(fd)
        if failures:
            failures.pop()
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(identity.syscalls, "close", fails_once)
    with pytest.raises(OSError, match="No space"):
        held.close()
    assert set(os.listdir("/proc/self/fd")) == before
