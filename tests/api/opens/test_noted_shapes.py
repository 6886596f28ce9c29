"""Sizes of new files that store.json notes: believed as far as they are usual, and agree with the files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest

import rocketstore
from rocketstore.log.layout import store_json
from tests.support.small_store import SMALL, open_small
from tests.support.state_json import change_json

SIZES = {name: SMALL[name] for name in SMALL if not name.startswith("index")}
LARGE = (2**28, 100_000_000)


def noted(root: Path) -> tuple[int, int]:
    state = json.loads((root / "rocketstore" / "store.json").read_text())
    return state["index_slots"], state["index_entries"]


def note(root: Path, slots: int, entries: int) -> None:
    change_json(root / "rocketstore" / "store.json", index_slots=slots, index_entries=entries)


def opened(root: Path, **options: Any) -> tuple[tuple[int, int], str]:
    """The shape that a new index file gets, and what the open says."""
    with rocketstore.open(root, "rw", **SIZES, **options) as store:
        config = store._open().config
        return (config.index_slots, config.index_entries), " ".join(store.recovery.notes)


@pytest.mark.parametrize("large", [LARGE, (2**28, 100), (16, 100_000_000)])
def test_an_unusual_note_without_a_file_is_not_believed(
    tmp_path: Path, large: tuple[int, int]
) -> None:
    """263 bytes made an open take a gigabyte of the disk."""
    open_small(tmp_path).close()
    note(tmp_path, *large)
    shape, said = opened(tmp_path)
    assert shape == (5_000_000, 20_000_000)
    assert f"notes {large[0]} slots" in said
    assert noted(tmp_path) == (5_000_000, 20_000_000)
    assert "notes" not in opened(tmp_path)[1]


def test_an_unusual_note_that_a_file_confirms_is_believed(tmp_path: Path) -> None:
    shape = 16, 20_000_001
    with open_small(tmp_path, index_slots=shape[0], index_entries=shape[1]) as store:
        store.writer("orders").put(b"x", keys="k")
    assert opened(tmp_path) == (shape, "")
    [path] = (tmp_path / "index").iterdir()
    os.unlink(path)
    note(tmp_path, *shape)
    assert opened(tmp_path)[0] == (5_000_000, 20_000_000)


def test_a_usual_note_is_believed_without_a_file(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    assert opened(tmp_path) == ((16, 64), "")


def test_the_options_of_the_open_count(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    note(tmp_path, *LARGE)
    assert opened(tmp_path, index_slots=20) == ((20, 20_000_000), "")


@pytest.mark.parametrize("bytes_noted", [1300, 2560, 16_380])
@pytest.mark.parametrize("mode", ["r", "r+", "rw"])
def test_a_length_that_the_names_of_queue_files_contradict_is_not_believed(
    tmp_path: Path, mode: Literal["r", "r+", "rw"], bytes_noted: int
) -> None:
    """Opens for writing ended in a ValueError, and would have grown the files over each other."""
    size = SMALL["consume_queue_file_size_bytes"]
    count = 2 * size // 20 + 5
    with open_small(tmp_path) as store:
        for number in range(count):
            store.writer("t").put(b"%d" % number)
    path = tmp_path / "rocketstore" / "store.json"
    state = json.loads(path.read_text())
    assert state["queue_file_bytes"] == size
    path.write_text(json.dumps({**state, "queue_file_bytes": bytes_noted}))
    with rocketstore.open(tmp_path, mode) as store:
        assert store.config.consume_queue_file_size_bytes == size
        assert [m.body for m in store.consumer("t")] == [b"%d" % n for n in range(count)]


def test_an_open_reads_the_notes_once_and_stores_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each phase read them again, and the first open stored them without sizes, then with them."""
    calls: list[str] = []

    def watch(name: str) -> None:
        real = getattr(store_json, name)
        monkeypatch.setattr(store_json, name, lambda *given: calls.append(name) or real(*given))

    watch("read_json")
    watch("write_own_json")
    for expected in (["read_json", "write_own_json"], ["read_json"]):
        calls.clear()
        with open_small(tmp_path):
            assert calls == expected
