"""Inner batches whose segments are removed when threads have read them ahead, but nobody has taken them apart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import OffsetOutOfRangeError
from rocketstore.scanning import parallel as scan_reading
from rocketstore.scanning.delivered import NEEDED, messages_in
from tests.support.batch_store import BatchStore

THREADS = 2
#: What the threads have read when a row of the second segment is handed out; each is a part.
AHEAD = 3


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    store = BatchStore(tmp_path / "s")
    store.fill_batches(60)
    monkeypatch.setattr(scan_reading, "PART_BYTES", store.segment_size)
    return store.root


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released with each part that a thread has read."""
    parts = threading.Semaphore(0)
    part = scan_reading.ScanReading._part

    def counted(*given: Any) -> Any:
        found = part(*given)
        parts.release()
        return found

    monkeypatch.setattr(scan_reading.ScanReading, "_part", counted)
    return parts


def trimmed_behind(scan: Any, read: threading.Semaphore) -> tuple[Iterator[int], int]:
    """Places of the messages of a scan, whose first three segments are removed when the threads have read them; and
    where the log begins then."""
    segments = sorted(Path(scan.path, "commitlog").iterdir())
    assert len(segments) > 1 + AHEAD
    places = (int(place) for columns, _ in messages_in(scan) for place in columns[NEEDED[1]])
    while next(places) < int(segments[1].name):
        pass
    for _ in range(AHEAD):
        assert read.acquire(timeout=60)
    for segment in segments[:3]:
        segment.unlink()
    return places, int(segments[3].name)


def test_trimmed_is_not_damaged(root: Path, read: threading.Semaphore) -> None:
    """It was told as a record that cannot be believed."""
    scan = rocketstore.scan(root, columns=NEEDED, chunk_bytes=300, threads=THREADS)
    places, begin = trimmed_behind(scan, read)
    seen = [0]
    with pytest.raises(OffsetOutOfRangeError) as raised:
        seen.extend(places)
    assert seen[-1] < raised.value.asked < raised.value.minimum == begin


def test_what_is_skipped_is_counted(root: Path, read: threading.Semaphore) -> None:
    scan = rocketstore.scan(
        root, columns=NEEDED, chunk_bytes=300, threads=THREADS, on_damage="skip"
    )
    every = [int(p) for columns, _ in messages_in(scan) for p in columns[NEEDED[1]]]
    while read.acquire(blocking=False):
        pass
    places, begin = trimmed_behind(scan, read)
    seen = set(places)
    lost = scan.report.damage
    assert {range_.reason for range_ in lost} == {"trimmed"} and lost[-1].end <= begin
    gone = {place for place in every if any(r.start <= place < r.end for r in lost)}
    assert gone and seen.isdisjoint(gone)
    assert seen | gone == {place for place in every if place >= min(seen)}
