"""A scan on several threads gives what one thread gives, in the same order."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptRecordError, OffsetOutOfRangeError, Scan
from rocketstore._native.format import codec
from rocketstore.scanning import parallel as scan_reading
from tests.support.column_tools import fill_at_random, rows_of
from tests.support.made_store import MadeStore


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("rocketstore-scan")]


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Threads that read a part, in the order of the parts that began."""
    names: list[str] = []
    part = scan_reading.ScanReading._part

    def named(*given: Any) -> Any:
        names.append(threading.current_thread().name)
        return part(*given)

    monkeypatch.setattr(scan_reading.ScanReading, "_part", named)
    return names


def scans(path: Path, **given: Any) -> tuple[Scan, Scan]:
    """The same scan, read by one thread and by three."""
    one, three = (rocketstore.scan(path, threads=threads, **given) for threads in (1, 3))
    return one, three


def outcome(scan: Scan) -> tuple[list[dict[str, Any]], str, Any]:
    """Rows, the error behind them, and the report."""
    rows: list[dict[str, Any]] = []
    error = ""
    try:
        for chunk in scan:
            rows += rows_of([chunk])
    except (CorruptRecordError, OffsetOutOfRangeError) as caught:
        error = str(caught)
    return rows, error, scan.report


def test_parts_of_any_size(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, readers: list[str], root: Path
) -> None:
    fill_at_random(root, rng, 600)
    for part_bytes in (2_000, 10_000, 70_000):
        monkeypatch.setattr(scan_reading, "PART_BYTES", part_bytes)
        for given in (
            {},
            {"topics": "orders"},
            {"tags": "paid || late"},
            {"columns": ["body_view"]},
        ):
            one, three = scans(root, chunk_bytes=900, **given)
            assert outcome(three) == outcome(one)
    assert len(readers) > 100
    assert all(name.startswith("rocketstore-scan") for name in readers)


def test_any_range(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, readers: list[str], root: Path
) -> None:
    fill_at_random(root, rng, 300)
    monkeypatch.setattr(scan_reading, "PART_BYTES", 2_000)
    end = rocketstore.scan(root).end_offset
    for _ in range(20):
        low, high = sorted(rng.randrange(end + 1) for _ in range(2))
        one, three = scans(root, begin_offset=low, end_offset=high, chunk_bytes=500)
        assert outcome(three) == outcome(one), (low, high)
    assert readers


@pytest.mark.parametrize("on_damage", ["raise", "skip"])
def test_damage(
    on_damage: str,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    readers: list[str],
    root: Path,
) -> None:
    """Raised behind the rows in front of it, or the same ranges in the report; a missing segment, too."""
    fill_at_random(root, rng, 500)
    monkeypatch.setattr(scan_reading, "PART_BYTES", 3_000)
    segments = sorted((root / "commitlog").iterdir())
    one, three = scans(root, chunk_bytes=1_000, on_damage=on_damage)
    assert outcome(three) == outcome(one)
    assert readers
    if on_damage == "skip":
        segments.pop(len(segments) // 2).unlink()
    found = 0
    for _ in range(12):
        with rng.choice(segments[:-1]).open("r+b") as file:
            file.seek(rng.randrange(60_000))
            file.write(rng.randbytes(rng.choice([1, 40, 4000])))
        expected = outcome(one)
        assert outcome(three) == expected
        found += bool(expected[1] or expected[2].damage)
    assert found > 8


@pytest.mark.parametrize("on_damage", ["raise", "skip"])
def test_what_was_trimmed_since(
    on_damage: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    fill_at_random(root, rng, 500)
    monkeypatch.setattr(scan_reading, "PART_BYTES", 3_000)
    one, three = scans(root, chunk_bytes=1_000, on_damage=on_damage)
    with rocketstore.open(root) as store:
        store.trim(before_offset=2 << 16)
        begin = store.begin_offset
    assert outcome(three) == outcome(one)
    assert bool(outcome(three)[0]) == (on_damage == "skip")
    told = [(damage.end, damage.reason) for damage in three.report.damage]
    assert told == ([(begin, "trimmed")] if on_damage == "skip" else [])


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_trimmed_while_it_is_read(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, threads: int, root: Path
) -> None:
    """Where damage is skipped it counts as lost; an error came from behind the first part."""
    fill_at_random(root, rng, 500)
    monkeypatch.setattr(scan_reading, "PART_BYTES", 3_000)
    scan = rocketstore.scan(root, chunk_bytes=1_000, on_damage="skip", threads=threads)
    chunks = iter(scan)
    next(chunks)
    segments = sorted((root / "commitlog").iterdir())
    for segment in segments[:2]:
        segment.unlink()
    assert [chunk.end_offset for chunk in chunks][-1] == scan.end_offset
    [lost] = scan.report.damage
    assert (lost.end, lost.reason) == (int(segments[2].name), "trimmed")


def test_a_body_that_looks_like_a_record_of_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that began inside of a message is read again from where the message ends."""
    made = MadeStore(tmp_path / "store", segment_size=1 << 16, record_crc=False)
    for _ in range(30):
        made.fill(1)
        made.put_lookalike()
        made.dispatch()
    (made.root / "abort").touch()
    believed = set()
    for part_bytes in range(400, 1200, 20):
        monkeypatch.setattr(scan_reading, "PART_BYTES", part_bytes)
        one, three = scans(made.root, chunk_bytes=200)
        expected = outcome(one)
        assert len(expected[0]) == 60
        assert outcome(three) == expected
        believed |= {part.begin_offset for part in one.split(part_bytes)}
    assert believed - {record.physical_offset for record in made.records}, "no part began in a body"


def test_who_has_enough_reads_nothing_ahead(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, readers: list[str], root: Path
) -> None:
    fill_at_random(root, rng, 600)
    monkeypatch.setattr(scan_reading, "PART_BYTES", 20_000)
    _, three = scans(root, chunk_bytes=1_000)
    chunks = iter(three)
    next(chunks)
    assert not readers
    for _ in chunks:
        if readers:
            break
    count = len(readers)
    assert 0 < count <= 4
    chunks.close()  # type: ignore[attr-defined]
    assert len(readers) <= 4


def test_small_scans_and_large_chunks_need_no_threads(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, readers: list[str], root: Path
) -> None:
    fill_at_random(root, rng, 600)
    one, three = scans(root)
    assert outcome(three) == outcome(one)
    monkeypatch.setattr(scan_reading, "PART_BYTES", 20_000)
    one, three = scans(root, chunk_bytes=20_000)
    assert outcome(three) == outcome(one)
    assert not readers


def test_how_many(rng: random.Random, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    fill_at_random(root, rng, 10)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert rocketstore.scan(root, columns=["topic", "body_view"]).threads == 3
    assert rocketstore.scan(root).threads == rocketstore.scan(root, columns=["body"]).threads == 1
    monkeypatch.setattr("os.cpu_count", lambda: 32)
    assert rocketstore.scan(root, columns=["topic"]).threads == 4
    scan = rocketstore.scan(root, threads=2)
    assert pickle.loads(pickle.dumps(scan)) == scan
    assert [part.threads for part in scan.split(500)] == [1] * len(scan.split(500))
    for threads in (0, -1, 65):
        with pytest.raises(ValueError, match=rf"threads = {threads}: 1 … 64"):
            rocketstore.scan(root, threads=threads)


def test_hostile_headers_that_use_up_what_searches_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readers: list[str]
) -> None:
    """Which records are passed over then does not depend on threads."""
    size, at, number = 1 << 20, 0, 0
    log = bytearray(size)
    while at < size - 8192:
        whole = codec.encode_record(
            topic="t",
            body=bytes(2000 if number % 3 else 20),
            queue_offset=number,
            physical_offset=at,
            store_timestamp_ms=1_700_000_000_000,
        )
        log[at : at + len(whole)] = whole
        at, number = at + len(whole), number + 1
        for _ in range(8):
            head = bytearray(codec.encode_record(topic="t", body=b"", physical_offset=at)[:88])
            head[0:4] = (size - 4096 - at).to_bytes(4, "big")
            head[84:88] = (size - 4096 - at - 92).to_bytes(4, "big")
            log[at : at + 88] = head
            at += 88
    log[size - 4100 : size - 4096] = b"\1t\0\0"
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log)
    monkeypatch.setattr(scan_reading, "PART_BYTES", 50_000)
    one, three = (
        Scan(
            path=str(tmp_path),
            begin_offset=0,
            end_offset=size,
            limit_offset=size,
            columns=("physical_offset", "body_size"),
            on_damage="skip",
            chunk_bytes=10_000,
            threads=threads,
        )
        for threads in (1, 3)
    )
    rows, _, report = expected = outcome(one)
    assert outcome(three) == expected
    assert readers
    sizes = [row["body_size"] for row in rows]
    assert sizes.count(20) == -(-number // 3)
    assert 10 < sizes.count(2000) < number // 2, "the budget is used up on the way"
    assert report.lost_bytes > size // 4
