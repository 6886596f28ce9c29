"""Destroying a store: what is its own goes, what is not stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore import StoreClosedError
from tests.small_store import dispatched, open_small


def test_everything_of_the_store_goes(tmp_path: Path) -> None:
    """S003-11: close keeps the files, destroy deletes them."""
    root = tmp_path / "store"
    with open_small(root) as store:
        for n in range(100):
            store.writer("orders").put(b"x" * 200, keys=f"k{n}")
        with dispatched(store).consumer("orders", group="g") as consumer:
            consumer.poll()
            consumer.commit()
    assert (root / "commitlog" / ("0" * 20)).exists()
    store = open_small(root)
    store.destroy()
    assert store.closed
    assert not root.exists()
    with pytest.raises(StoreClosedError):
        store.destroy()


def test_alien_files_stay(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_small(root)
    store.writer("orders").put(b"x")
    (root / "commitlog" / "notes.txt").write_text("mine")
    (root / "own").mkdir()
    store.destroy()
    found = sorted(p.relative_to(root).as_posix() for p in root.rglob("*"))
    assert found == ["commitlog", "commitlog/notes.txt", "own"]


def test_the_place_can_be_used_again(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_small(root)
    store.writer("orders").put(b"old")
    store.destroy()
    with open_small(root) as store:
        assert (store.end_offset, store.topics()) == (0, [])
        assert store.writer("orders").put(b"new").queue_offset == 0


def test_messages_in_hand_outlive_the_store(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    message = store.get(store.writer("orders").put(b"held").physical_offset)
    view = message.body_view
    store.destroy()
    assert bytes(view) == b"held"
