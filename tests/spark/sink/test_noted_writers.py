"""What is noted of each writer: looked into seldom, however many there are."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from rocketstore.spark.sink import cleanup
from rocketstore.spark.sink.cleanup import remove_orphans
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Journal, read_state, sink_directory
from tests.spark.sink.test_committer import make
from tests.spark.staged import stage_bodies


def test_named_writers_are_looked_into_once_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit read what is noted of each that had not written for a week."""
    root, looked = tmp_path / "s", list[str]()
    make(root)
    for day in range(5):
        assert commit(str(root), f"load-{day}", 0, [stage_bodies(root, f"{day}", [b"x"])])
    files = list((sink_directory(root) / "writers").glob("*.json"))

    def read(path: Path) -> dict[str, Any] | None:
        looked.append(path.name)
        return read_state(path)

    monkeypatch.setattr(cleanup, "read_state", read)
    for weeks in (2, 1):
        for file in files:
            os.utime(file, times=(time.time() - weeks * 8 * 24 * 3600,) * 2)
        for _ in range(3):
            assert remove_orphans(str(root)) == 0
        assert sorted(looked) == sorted(file.name for file in files)
        looked.clear()
    assert Journal(root).last_version("load-0") == 0
