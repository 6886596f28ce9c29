"""Micro-batches begin and end where records do, however small their limit is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import rocketstore
from rocketstore.spark.source.microbatch import by_bytes, record_start
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.spark.reading import make_store

BODY = 1000


@pytest.fixture
def places(tmp_path: Path) -> list[tuple[int, int]]:
    """(begin, end) of the records of a store with several segments and blanks."""
    with rocketstore.open(
        tmp_path / "s", durability="os", commit_log_file_size_bytes=16 << 10, index_enabled=False
    ) as store:
        writer = store.writer("t")
        put = [writer.put(bytes([65 + number % 26]) * BODY) for number in range(40)]
        return [(result.physical_offset, result.end_offset) for result in put]


def drained(root: Path, start: int | None = None, **options: str) -> tuple[list[int], list[int]]:
    """(physical offsets, messages of each micro-batch) from `start` on, the beginning by default."""
    given = {"path": str(root), "startingOffsets": "earliest", **options}
    stream = Progress(ReadOptions.parse(given, stream=True))
    offset = stream.initial()
    if start is not None:
        offset["phys"] = start
    found: list[int] = []
    sizes = []
    while (end := stream.latest(offset)) != offset:
        rows = []
        for scan in stream.parts(offset, end)[0]:
            rows += [int(place) for columns in scan for place in columns["physical_offset"]]
        found, offset = found + rows, end
        sizes.append(len(rows))
    stream.close()
    return found, sizes


@pytest.mark.parametrize(
    ("records", "more"), [(0, 1), (0, 2), (0.5, 0), (1, -1), (1, 0), (1, 1), (2, 0), (14, 0)]
)
def test_at_least_one_record_a_batch(
    tmp_path: Path, places: list[tuple[int, int]], records: float, more: int
) -> None:
    size = places[0][1] - places[0][0]
    most = int(records * size) + more
    found, sizes = drained(tmp_path / "s", maxBytesPerTrigger=str(most))
    assert found == [begin for begin, _ in places]
    # About the limit: a batch may be half as large again, or go on to the end of a segment.
    assert max(sizes) <= max(1, 2 * most // size)


def test_records_of_all_sizes(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng, 150)
    for most in (1, rng.randrange(2, 600), rng.randrange(600, 2000)):
        found, _ = drained(tmp_path / "s", maxBytesPerTrigger=str(most))
        assert found == [m.physical_offset for m in messages], most


def test_a_large_record_among_small_ones(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s", durability="os", index_enabled=False) as store:
        sizes = [10, 3 << 20, 10, 10, 2 << 20, 3 << 20, 10]
        puts = [store.writer("t").put(bytes(size)) for size in sizes]
    found, _ = drained(tmp_path / "s", maxBytesPerTrigger="64k")
    assert found == [put.physical_offset for put in puts]


def test_checkpoints_within_a_record_go_on_behind_it(
    tmp_path: Path, places: list[tuple[int, int]]
) -> None:
    """An earlier release cut there, and had given the record out."""
    root = tmp_path / "s"
    for number in (0, 30, len(places) - 2):
        begin, end = places[number]
        for inside in (begin + 1, begin + 4, end - 1):
            for options in ({}, {"maxBytesPerTrigger": "1"}, {"failOnDataLoss": "false"}):
                found, _ = drained(root, inside, **options)
                assert found == [place for place, _ in places[number + 1 :]]


def test_a_place_in_front_of_a_record_stays(tmp_path: Path, places: list[tuple[int, int]]) -> None:
    with rocketstore.open(tmp_path / "s", "r") as store:
        for number, (begin, end) in enumerate(places):
            assert record_start(store, begin) == begin
            if number + 1 < len(places) and (following := places[number + 1][0]) != end:
                assert record_start(store, end) == end  # a blank starts
                assert record_start(store, end + 4) == following
                assert record_start(store, end + 9) in (end + 9, following)  # zeros, as a blank
                for place in (end, end + 4, end + 9):
                    later = [place for place, _ in places[number + 1 :]]
                    assert drained(tmp_path / "s", place, maxBytesPerTrigger="9k")[0] == later
        last = places[-1][1]
        assert [record_start(store, place) for place in (0, last, last + 1)] == [0, last, last + 1]


def test_damage_stays_in_front_of_who_reads(tmp_path: Path, places: list[tuple[int, int]]) -> None:
    root = tmp_path / "s"
    begin, end = places[10]
    segment = root / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    content[begin : begin + 8] = bytes(8)
    segment.write_bytes(content)
    with rocketstore.open(root, "r") as store:
        for place in (begin, begin + 20):
            assert record_start(store, place) == place
        assert by_bytes(store, begin, places[-1][1], 1) > end - 1
    found, _ = drained(root, maxBytesPerTrigger="1", failOnDataLoss="false")
    assert found == [place for place, _ in places if place != begin]
