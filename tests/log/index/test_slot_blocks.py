"""The hash table of an index file gets its blocks where keys fall."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Final

import pytest

import rocketstore
from rocketstore._native.os import syscalls
from rocketstore.log.index.segment import SLOTS_IN_PIECE
from rocketstore.log.layout.paths import StoreLayout
from tests.support.index_tools import opened, put

SLOTS: Final = 8 * SLOTS_IN_PIECE
PIECE_BYTES: Final = 4 * SLOTS_IN_PIECE


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    (tmp_path / "index").mkdir(mode=0o700)
    (tmp_path / "rocketstore" / "tmp").mkdir(parents=True)
    return StoreLayout(tmp_path)


def key(number: int) -> str:
    """Keys whose hashes are far apart."""
    return f"{number * 7919:012d}" * 2


def used(layout: StoreLayout) -> int:
    return sum(path.stat().st_blocks * 512 for path in layout.index.iterdir())


def test_a_slot_has_blocks_before_it_is_stored_to(layout: StoreLayout) -> None:
    """D-19: after a few keys a few pieces, after many the whole table, and after an open nothing is known."""
    index = opened(layout, slots=SLOTS, entries=10_000)
    assert put(index, "0", 0)
    assert used(layout) < 20 * 10_000 + 4 * PIECE_BYTES
    for number in range(1, 200):
        assert put(index, key(number), number)
    assert used(layout) >= 8 * PIECE_BYTES
    assert index.files[0].slots_ready == b"\1" * 8
    index.close()
    index = opened(layout, slots=SLOTS, entries=10_000)
    assert index.files[0].slots_ready == bytes(8)
    assert put(index, "0", 200)
    assert sum(index.files[0].slots_ready or b"") == 1
    index.close()


def test_no_room_for_a_slot_degrades_the_index(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-19 K-58: never a signal. Keys whose slots have blocks go on until then."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    index = opened(layout, slots=SLOTS, entries=10_000)
    assert put(index, "0", 0)
    monkeypatch.setattr(syscalls, "fallocate", refuse)
    assert put(index, "0", 1)
    assert not all(put(index, key(number), number) for number in range(2, 200))
    assert "No space" in str(index.degraded)
    index.close()


def test_keys_all_over_the_table_are_found(tmp_path: Path) -> None:
    """Through the dispatcher, in two runs: no key is left out where its slot had no block yet."""
    options: dict[str, Any] = {
        "commit_log_file_size_bytes": 1 << 20,
        "index_slots": SLOTS,
        "index_entries": 10_000,
        "durability": "os",
    }
    for run in range(2):
        with rocketstore.open(tmp_path, **options) as store:
            writer = store.writer("Orders")
            for number in range(200):
                writer.put(b"%d" % number, keys=f"k{number}-{run}")
            for number in range(200):
                for at in range(run + 1):
                    found = [bytes(m.body) for m in store.query("Orders", f"k{number}-{at}")]
                    assert found == [b"%d" % number]
