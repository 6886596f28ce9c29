"""Large batches of an os store: written to the file of the log by calls where its pages are not in memory."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from rocketstore import Store, StoreFailedError, encode_frames, tools
from rocketstore._native.append.direct_write import WriteThrough
from rocketstore._native.append.page_populator import SLEEP
from rocketstore.log.mapped_files.segment_blocks import NEVER, SegmentBlocks
from tests.support.disk_calls import DiskCalls, disk_calls
from tests.support.small_store import (
    BLANK_MAGIC,
    dispatched,
    everything,
    open_still,
    parts,
    segments,
)
from tests.support.text_columns import column

SIZE = 1 << 20
LARGE: dict[str, Any] = {
    "commit_log_file_size_bytes": SIZE,
    "consume_queue_file_size_bytes": 200_000,
}
PAGE = 4096

Put = Callable[[Store, list[bytes]], object]


def opened(path: Path, size: int = SIZE, **more: int) -> Store:
    """With no thread that makes pages ready, so that those of the next batch never are."""
    options = {**LARGE, "commit_log_file_size_bytes": size, **more}
    store = open_still(path, "os", **options)
    populator = parts(store).populator
    assert populator.stop(60)
    return store


def put_batch(store: Store, bodies: list[bytes]) -> object:
    return store.writer("orders", queue_id=0).put_batch(bodies)


def put_columns(store: Store, bodies: list[bytes]) -> object:
    offsets = numpy.cumsum([0, *map(len, bodies)], dtype=numpy.int64)
    return store.writer("orders", queue_id=0).put_columns((offsets, b"".join(bodies)))


def put_rows(store: Store, bodies: list[bytes]) -> object:
    return store.put_columns(column(bodies), topics=["orders"])


def put_frames(store: Store, bodies: list[bytes]) -> object:
    frames, _ = encode_frames(column(bodies), topics=["orders"])
    return store.put_frames(frames)


@pytest.fixture
def calls() -> Iterator[DiskCalls]:
    with disk_calls() as calls:
        yield calls


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with opened(tmp_path / "store") as store:
        yield store


def some_bodies(rng: random.Random, count: int = 120, size: int = 900) -> list[bytes]:
    return [rng.randbytes(rng.randrange(size - 200, size + 200)) for _ in range(count)]


def bodies_of(store: Store) -> list[bytes]:
    return [bytes(message.body) for message in everything(dispatched(store))]


def through(store: Store) -> WriteThrough:
    found = parts(store).commit_log.log.through
    assert found is not None
    return found


@pytest.mark.parametrize("put", [put_batch, put_columns, put_rows, put_frames])
def test_a_large_batch_is_written(
    tmp_path: Path, rng: random.Random, calls: DiskCalls, put: Put
) -> None:
    """In two calls; it is read as if it had been stored to the mapping, now and later."""
    sent = [b"first"]
    with opened(tmp_path) as store:
        put_batch(store, sent)
        for _ in range(3):
            bodies = some_bodies(rng)
            calls.made.clear()
            put(store, bodies)
            assert calls.made == ["pwrite", "pwrite"]
            sent += bodies
            put_batch(store, [b"between"])  # stored to the page that the batch ends in
            sent.append(b"between")
            assert bodies_of(store) == sent
    with opened(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert bodies_of(store) == sent
    assert tools.verify(tmp_path).ok


@pytest.mark.parametrize(
    "bodies",
    [[bytes(900)] * 60, [bytes(100)] * 1000, [bytes(900)] * 10_000],
    ids=["few", "small", "many"],
)
def test_others_are_stored_to_the_mapping(
    tmp_path: Path, calls: DiskCalls, bodies: list[bytes]
) -> None:
    """Few bytes, small records, and what is larger than the room for batches."""
    with opened(tmp_path, 16 << 20) as store:
        put_batch(store, bodies)
        assert "pwrite" not in calls.made
        assert bodies_of(store) == bodies


def test_so_are_pages_that_are_ready(store: Store, rng: random.Random, calls: DiskCalls) -> None:
    bodies = some_bodies(rng)
    through(store).pages.skip_to(SIZE)
    put_batch(store, bodies)
    assert calls.made == []
    assert bodies_of(store) == bodies


@pytest.mark.parametrize("batches", [True, False])
def test_pages_are_asked_for_soon_behind_written_batches(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, batches: bool
) -> None:
    """And no sooner than ever where single messages overtook the thread that makes pages."""
    # Blocks that are due ask as well, at a place that the thread that made the last ones decided.
    monkeypatch.setattr(SegmentBlocks, "_due_at", lambda *_: NEVER)
    with opened(tmp_path, 64 << 20) as store:
        asked: list[int] = []
        monkeypatch.setattr(parts(store).populator, "wake", lambda: asked.append(store.end_offset))
        put = store.writer("orders", queue_id=0).put
        while not asked or asked[-1] < 8 << 20:
            put(bytes(5000))
        asked.clear()
        while batches and not asked:
            put_batch(store, some_bodies(rng, 300, 2000))
        begin = store.end_offset
        asked.clear()
        while not asked:
            put(bytes(5000))
        step = asked[0] - begin
        assert (step < 1 << 20) == batches, f"{step} bytes"


def rounds_beside_batches(store: Store, rng: random.Random) -> Callable[[], int]:
    """A round of the thread that makes pages, beside batches that come fast and are written by calls: what it says."""
    put_batch(store, some_bodies(rng, 1200))
    pages, file = through(store).pages, parts(store).commit_log.queue.files[0]
    now = time.monotonic_ns() + 1_000_000_000
    pages.round(file, now)
    put_batch(store, some_bodies(rng, 1200))
    assert pages.written == store.end_offset
    return lambda: pages.round(file, now + 200_000)


def test_pages_are_made_well_ahead_of_written_batches(
    tmp_path: Path, rng: random.Random, calls: DiskCalls
) -> None:
    """Until batches come to them they are written, into the gap; then they are stored."""
    with opened(tmp_path, 64 << 20) as store:
        pages = through(store).pages
        pages.quick_ns = pages.slow_ns = 1 << 60  # whatever the machine of the test takes
        again = rounds_beside_batches(store, rng)
        assert again() == 0
        begin, ready = store.end_offset, pages.populated
        assert begin + (3 << 20) < ready < begin + (6 << 20)
        found: dict[int, bool] = {}
        while (at := store.end_offset) < ready - (200 << 10):
            calls.made.clear()
            put_batch(store, some_bodies(rng))
            found[at] = "pwrite" in calls.made
        written = [at for at, call in found.items() if call]
        stored = [at for at, call in found.items() if not call]
        assert max(written) < min(stored)
        assert begin + (2 << 20) < min(stored) < begin + (4 << 20)
        assert again() == 0, "and goes on"
    assert tools.verify(tmp_path).ok


def test_pages_behind_a_gap_are_used(tmp_path: Path, rng: random.Random, calls: DiskCalls) -> None:
    """Before the writer has passed one gap there is no other, which would have what is ready in front of it written."""
    with opened(tmp_path, 64 << 20) as store:
        pages = through(store).pages
        pages.quick_ns = pages.slow_ns = 1 << 60
        again = rounds_beside_batches(store, rng)
        stored = 0
        for _ in range(20):
            again()
            calls.made.clear()
            put_batch(store, some_bodies(rng, 2200))
            stored += "pwrite" not in calls.made
        assert stored > 5


@pytest.mark.parametrize("size", [250, 900])
def test_where_no_pages_are_made_batches_are_written(
    tmp_path: Path, rng: random.Random, calls: DiskCalls, size: int
) -> None:
    """All of them, also of small messages, without a thread beside the writer."""
    bodies = some_bodies(rng, 400, size)
    with open_still(tmp_path, "os", **{**LARGE, "populate_window_bytes": 0}) as store:
        assert parts(store).populator is None
        for number in range(1, 20):
            calls.made.clear()
            put_batch(store, bodies)
            assert calls.made == ["pwrite", "pwrite"]
            put_batch(store, [b"between"])
            assert len(bodies_of(store)) == number * 401
    assert tools.verify(tmp_path).ok


@pytest.mark.parametrize("put", [put_columns, put_rows, put_frames])
def test_no_row_is_alone_where_a_segment_begins(
    tmp_path: Path, rng: random.Random, calls: DiskCalls, put: Put
) -> None:
    """It would be stored to a fresh page: the kernel would read ahead, zeros, and on in front of the dispatcher."""
    ends: list[int] = []
    bodies = some_bodies(rng, 4000)
    with open_still(tmp_path, "os", **{**LARGE, "populate_window_bytes": 0}) as store:
        calls.before["pwrite"] = lambda: ends.append(store.end_offset)
        put(store, bodies)
        files = -(-store.end_offset // SIZE)
        assert files > 3
        assert len(ends) == 2 * files
        assert all(end == 0 or end % SIZE > SIZE - 4096 for end in ends), ends
        assert bodies_of(store) == bodies


def test_a_small_window_is_no_lead(tmp_path: Path, rng: random.Random) -> None:
    """What is made ahead of batches lies where the option allows, but for the end of the step."""
    with opened(tmp_path, 64 << 20, populate_window_bytes=1 << 20) as store:
        through(store).pages.slow_ns = 1 << 60
        again = rounds_beside_batches(store, rng)
        assert again() == 0
        assert 0 < through(store).pages.populated - store.end_offset < (1 << 20) + (2 << 20)


def test_slow_pages_are_not_made_beside_written_batches(tmp_path: Path, rng: random.Random) -> None:
    """The next batch would find them zeroed, and write them again; tried once, they are let be for 64 MiB. For single
    messages they are made as ever."""
    with opened(tmp_path, 256 << 20) as store:
        pages = through(store).pages
        pages.quick_ns = -1
        again = rounds_beside_batches(store, rng)
        assert again() == 0
        begin, ready = store.end_offset, pages.populated
        assert again() == SLEEP
        bodies = [rng.randbytes(2000)] * 3900
        while store.end_offset < begin + (56 << 20):
            put_batch(store, bodies)
            assert pages.written == store.end_offset
            assert again() == SLEEP
        assert pages.populated == store.end_offset > ready
        store.writer("orders", queue_id=0).put(b"alone")
        assert again() == 0
        while store.end_offset < begin + (136 << 20):
            put_batch(store, bodies)
        assert pages.written == store.end_offset
        assert again() == 0


def put_each(store: Store, bodies: list[bytes]) -> None:
    writer = store.writer("orders", queue_id=0)
    for body in bodies:
        writer.put(body)


@pytest.mark.parametrize("pages_per_file", [150, 256, 700], ids=["small", "whole", "large"])
def test_beside_the_thread_that_makes_pages(
    tmp_path: Path, rng: random.Random, calls: DiskCalls, pages_per_file: int
) -> None:
    """Written or stored, into gaps and behind them, over the ends of files that are no whole number of pages: all
    of it is there, once and in order."""
    size = pages_per_file * PAGE + (0 if pages_per_file == 256 else rng.randrange(PAGE))
    options = {**LARGE, "commit_log_file_size_bytes": size}
    sent = some_bodies(rng, 400)
    with open_still(tmp_path, "os", **options) as store:
        pages = through(store).pages
        put_batch(store, sent)
        assert "pwrite" in calls.made, "no page is ready yet"
        while store.end_offset < 30 * SIZE:
            pages.quick_ns, pages.slow_ns = (rng.choice([-1, 1 << 60]) for _ in range(2))
            put = rng.choice([put_batch, put_columns, put_rows, put_frames, put_each])
            bodies = some_bodies(rng, rng.choice([5, 100, 400]))
            for _ in range(rng.randrange(1, 9)):
                put(store, bodies)
                sent += bodies
        assert bodies_of(store) == sent
    assert tools.verify(tmp_path).ok


def test_the_first_page_comes_last(
    store: Store, tmp_path: Path, rng: random.Random, calls: DiskCalls
) -> None:
    """D-37: until all is in the file nobody sees the batch, and a kill leaves no beginning of a record."""
    put_batch(store, [b"before"])
    end = store.end_offset
    [path] = segments(tmp_path / "store")
    found: list[bytes] = []

    def look() -> None:
        data = path.read_bytes()
        assert store.end_offset == end
        assert data[end:PAGE] == bytes(PAGE - end)
        found.append(data[PAGE : 2 * PAGE])

    calls.before["pwrite"] = look
    put_batch(store, some_bodies(rng))
    assert found[0] == bytes(PAGE)
    assert found[1] != bytes(PAGE)


def test_a_batch_rolls(tmp_path: Path, rng: random.Random, calls: DiskCalls) -> None:
    """The blank is stored to the old segment, the batch is written to the new one."""
    with opened(tmp_path) as store:
        sent: list[bytes] = []
        while len(segments(tmp_path)) < 2 or store.end_offset < SIZE:
            bodies = some_bodies(rng)
            put_batch(store, bodies)
            sent += bodies
        assert bodies_of(store) == sent
        first, second = (path.read_bytes() for path in segments(tmp_path)[:2])
    assert BLANK_MAGIC in first
    assert second[4:8] != bytes(4)
    assert tools.verify(tmp_path).ok


@pytest.mark.parametrize("good", [0, 1], ids=["at once", "after the first"])
def test_a_write_that_fails(
    tmp_path: Path, rng: random.Random, calls: DiskCalls, good: int
) -> None:
    """D-13: the put says why, the store takes no more, and opened again it has nothing of the batch."""
    store = opened(tmp_path)
    put_batch(store, [b"before"])
    left = [good]

    def fail() -> None:
        if not left[0]:
            raise OSError(errno.ENOSPC, "full")
        left[0] -= 1

    calls.before["pwrite"] = fail
    with pytest.raises(StoreFailedError, match=rf"nothing was stored.*No space.*{tmp_path}"):
        put_batch(store, some_bodies(rng))
    with pytest.raises(StoreFailedError, match="No space"):
        put_batch(store, [b"after"])
    assert bodies_of(store) == [b"before"]
    store.close()
    calls.before.clear()
    with opened(tmp_path) as store:
        assert store.recovery.mode == "unclean"
        assert bodies_of(store) == [b"before"]
        put_batch(store, [b"after"])
        assert bodies_of(store) == [b"before", b"after"]


@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_stores_with_buffers_have_their_own_way(tmp_path: Path, durability: str) -> None:
    with open_still(tmp_path, durability, **LARGE) as store:
        assert parts(store).commit_log.log.through is None


def test_nothing_is_committed_before_it_is_written(
    tmp_path: Path, rng: random.Random, calls: DiskCalls
) -> None:
    """Of a batch that rolls and cannot be written: the log had gone to its segment, which the error names, the
    positions stay. And no flag that is cleared lets anybody put behind it."""
    store = opened(tmp_path)
    positions = parts(store).positions
    while positions.wrote < SIZE - 250_000:
        put_batch(store, some_bodies(rng))
    wrote = positions.wrote
    assert wrote < SIZE

    def fail() -> None:
        raise OSError(errno.ENOSPC, "full")

    calls.before["pwrite"] = fail
    with pytest.raises(StoreFailedError, match=f"{SIZE:020d}"):
        put_batch(store, some_bodies(rng, 400))
    assert positions.visible <= positions.committed <= positions.wrote == wrote
    calls.before.clear()
    parts(store).commit_log.log.admit()
    with pytest.raises(StoreFailedError):
        put_batch(store, [b"behind a batch in part"])
    store.close()
