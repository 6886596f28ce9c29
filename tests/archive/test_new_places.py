"""What is made for an archive in a directory that is not there yet."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import rocketstore
from tests.archive.watched_object_store import sealed, small_pieces
from tests.support.column_tools import fill_at_random

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


def test_names_of_new_directories_are_synced(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store trims what was shipped: a crash must not take the archive's directory."""
    small_pieces(monkeypatch)
    fill_at_random(tmp_path / "store", rng, 200)
    synced: set[str] = set()
    sync = os.fsync

    def note(fd: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    place = tmp_path / "lake" / "2026" / "orders"
    assert rocketstore.ship(tmp_path / "store", f"file://{place}").segments == len(sealed(tmp_path))
    made = [place, *place.parents]
    assert synced.issuperset(map(str, made[: made.index(tmp_path) + 1]))


@pytest.mark.parametrize("uri", ["s3://", "gs://"])
def test_a_place_has_a_bucket(uri: str) -> None:
    """pyarrow's error for the path of the manifest came through."""
    with pytest.raises(rocketstore.ConfigError, match="with a bucket, as in s3://bucket/prefix"):
        rocketstore.scan(uri)
