"""What another user may not do is told of the directory that was asked for."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketstore
from tests.process.other_process import open_small

InChild = Callable[[Callable[[], object]], None]

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.mark.root
def test_a_directory_without_permission(tmp_path: Path, in_child: InChild) -> None:
    root = Path("/tmp") / tmp_path.name  # every directory above must be open to other users
    root.mkdir()
    store = root / "store"
    open_small(store).close()
    root.chmod(0o755)

    def refused(mode: str, words: str) -> None:
        os.setgroups([])
        os.setgid(5678)
        os.setuid(1234)
        with pytest.raises(PermissionError, match=words) as caught:
            rocketstore.open(store, mode)  # type: ignore[arg-type]
        assert re.search(r": '(.*)'$", str(caught.value))[1] == str(store)  # type: ignore[index]

    try:
        store.chmod(0o700)
        for mode in ("r", "rw", "r+"):
            in_child(lambda mode=mode: refused(mode, "cannot be read and entered by this user"))  # type: ignore[misc]
        store.chmod(0o755)
        in_child(lambda: refused("rw", "cannot be written by this user; mode='r' reads a store"))
    finally:
        shutil.rmtree(root)


def test_a_read_only_file_system_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_small(tmp_path).close()
    access, found = os.access, os.statvfs(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
    with pytest.raises(PermissionError, match="cannot be written by this user; mode='r' reads"):
        open_small(tmp_path)
    read_only = os.statvfs_result((*found[:8], found.f_flag | os.ST_RDONLY, found[9]))
    monkeypatch.setattr(os, "statvfs", lambda path: read_only)
    with pytest.raises(PermissionError, match="the file system is read-only; mode='r' reads"):
        open_small(tmp_path)
    open_small(tmp_path, "r").close()
