"""A file of the index is an older copy of itself after a clean stop: its keys are found, and its ids are known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import pytest

import rocketstore
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.files_stamp import index_stamp, queues_stamp
from rocketstore.log.queues.saved_ends import load_queue_ends

COUNT = 30


def options(entries: int = 40) -> dict[str, Any]:
    return {"index_slots": 20, "index_entries": entries}


def put_day(path: Path, day: int, entries: int = 40) -> None:
    """Messages with a key and an id each, then some that the index does not know."""
    with rocketstore.open(path, commit_log_file_size_bytes=1 << 16, **options(entries)) as store:
        for n in range(COUNT):
            store.writer("t").put(b"x", keys=f"k{day}.{n}", unique_id=f"u{day}.{n}")
        for _ in range(5):
            store.writer("t").put(b"without keys")


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("which", ["between others", "last"])
@pytest.mark.parametrize("times", ["kept", "new"])
def test_keys_are_found(tmp_path: Path, which: str, times: str, mode: Literal["r", "r+"]) -> None:
    path, entries, days = tmp_path / "store", 40 if which == "between others" else 400, 3
    put_day(path, 0, entries)
    old = max((path / "index").iterdir())
    kept = shutil.copy2(old, tmp_path / "kept")
    for day in range(1, days):
        put_day(path, day, entries)
    assert (max((path / "index").iterdir()) == old) is (which == "last")
    (shutil.copy2 if times == "kept" else shutil.copy)(kept, old)
    with rocketstore.open(path, mode, **options(entries)) as store:
        for day in range(days):
            for n in range(COUNT):
                assert len(store.query("t", f"k{day}.{n}")) == 1, (day, n)
        if mode == "r+":
            assert store.writer("t").put(b"x", unique_id="u1.1").duplicate


def test_an_index_that_nobody_touched_is_not_looked_at(tmp_path: Path) -> None:
    """The digest that a clean close notes is that of the next open, in whatever directory the store is."""
    put_day(tmp_path / "store", 0)
    layout = StoreLayout((tmp_path / "store").rename(tmp_path / "moved"))
    for number in range(2):
        assert load_queue_ends(layout).stamps == (queues_stamp(layout), index_stamp(layout))
        put_day(layout.root, number + 1)
    max(layout.index.iterdir()).touch()
    queues, index = load_queue_ends(layout).stamps
    assert (queues == queues_stamp(layout), index == index_stamp(layout)) == (True, False)
