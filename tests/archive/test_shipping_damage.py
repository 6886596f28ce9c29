"""What `ship` leaves out of a log with damage: the damaged segments, and nothing else."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import rocketstore
from tests.archive.watched_object_store import SEGMENT_BYTES, named, sealed, small_pieces, uri_of
from tests.support.column_tools import fill_at_random, messages_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


def test_a_damaged_segment_is_not_shipped(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 400)
    victim = next(
        row
        for row in messages_of(store)
        if row["physical_offset"] > 2 * SEGMENT_BYTES and row["size"] > 300
    )
    path = store / "commitlog" / f"{2 * SEGMENT_BYTES:020}"
    content = bytearray(path.read_bytes())
    content[victim["physical_offset"] % SEGMENT_BYTES + 150] ^= 1
    path.write_bytes(content)
    with pytest.raises(rocketstore.CorruptRecordError) as caught:
        rocketstore.ship(store, uri)
    assert caught.value.physical_offset == victim["physical_offset"]
    whole = sealed(tmp_path)
    assert named(tmp_path) == whole[:2] + whole[3:]
    assert caught.value.__notes__ == [
        f"not shipped: {2 * SEGMENT_BYTES:020}",
        f"{len(whole) - 1} other segments shipped by this call",
    ]


@pytest.mark.parametrize("left", [300, 0])
def test_a_segment_that_was_cut_is_not_shipped(
    left: int, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where it ends behind a record."""
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 400)
    within = [m for m in messages_of(store) if m["physical_offset"] // SEGMENT_BYTES == 1]
    last = within[-1]["physical_offset"] % SEGMENT_BYTES + within[-1]["size"]
    os.truncate(store / "commitlog" / f"{SEGMENT_BYTES:020}", last - left)
    with pytest.raises(rocketstore.CorruptRecordError):
        rocketstore.ship(store, uri)
    assert named(tmp_path) == sealed(tmp_path)[:1] + sealed(tmp_path)[2:]


def test_a_segment_that_is_missing_between_others_is_named(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 400)
    path = store / "commitlog" / f"{SEGMENT_BYTES:020}"
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(rocketstore.CorruptRecordError, match="missing segment") as caught:
        rocketstore.ship(store, uri)
    assert caught.value.physical_offset == SEGMENT_BYTES
    assert named(tmp_path) == sealed(tmp_path)
    path.write_bytes(content)
    rocketstore.ship(store, uri)
    assert named(tmp_path) == sealed(tmp_path)
    path.unlink()
    rocketstore.ship(store, uri)  # the archive has it
