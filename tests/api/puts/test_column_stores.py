"""Scans of stores that RocketMQ wrote, of damaged ones, and beside a writer."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

import rocketstore
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.column_reader import LogFiles
from tests.support.column_tools import fill_at_random, messages_of, rows_of
from tests.support.made_store import MadeStore, rocketmq_store

STORES = [
    "batches-498",
    "batches-533",
    "clean-498",
    "clean-533",
    "crashed-498",
    "crashed-533",
    "delay-transactions-498",
    "expired-498",
    "ipv6-533",
    "light-queues-533",
    "long-topics-533",
    "queues-lost-498",
    "record-crc-533",
    "torn-533",
]


@pytest.mark.parametrize("name", STORES)
def test_stores_of_rocketmq(name: str, tmp_path: Path) -> None:
    root, _ = rocketmq_store(name, tmp_path)
    expected = messages_of(root)
    scan = rocketstore.scan(root, system_topics=True)
    assert rows_of(scan) == expected
    assert expected
    parts = scan.split(5000)
    assert [row for part in parts for row in rows_of(part)] == expected


def test_damage_is_raised_or_counted(tmp_path: Path) -> None:
    """The store has one wrong bit in a body."""
    root, expect = rocketmq_store("damaged-533", tmp_path)
    (damaged,) = expect["must_not"]["damaged"]
    seen = []
    with pytest.raises(rocketstore.CorruptRecordError) as caught:
        for columns in rocketstore.scan(root, columns=["physical_offset"]):
            seen += columns["physical_offset"].tolist()
    assert caught.value.physical_offset == damaged
    scan = rocketstore.scan(root, columns=["physical_offset"], on_damage="skip")
    found = [row["physical_offset"] for row in rows_of(scan)]
    acked = {row["physical_offset"] for row in expect["acked"]}
    assert [at for at in found if at < damaged] == seen
    assert set(found) >= {at for at in acked if at < scan.end_offset} - {damaged}
    assert [(d.start, d.reason) for d in scan.report.damage] == [(damaged, "body crc")]
    assert scan.report.lost_bytes > 0
    whole = rocketstore.scan(root, columns=["physical_offset"], verify=False)
    assert damaged in [row["physical_offset"] for row in rows_of(whole)]


def test_random_damage_is_reported_and_parts_agree(rng: random.Random, root: Path) -> None:
    fill_at_random(root, rng, 400)
    whole = rocketstore.scan(root, on_damage="skip")
    rows = rows_of(whole)
    hit = sorted(rng.sample(range(400), 6))
    size = 64 << 10
    for number in hit:
        place = rows[number]["physical_offset"] + rng.randrange(rows[number]["size"] - 20)
        with (root / "commitlog" / f"{place - place % size:020d}").open("r+b") as file:
            file.seek(place % size)
            old = file.read(1)[0]
            file.seek(place % size)
            file.write(bytes([old ^ 0x55]))
    expected = [row for number, row in enumerate(rows) if number not in hit]
    assert rows_of(whole) == expected
    starts = {damage.start for damage in whole.report.damage}
    assert starts <= {rows[number]["physical_offset"] for number in hit}
    assert sum(rows[number]["size"] for number in hit) == whole.report.lost_bytes
    parts = whole.split(20_000)
    assert [row for part in parts for row in rows_of(part)] == expected


def test_missing_segments(rng: random.Random, root: Path) -> None:
    fill_at_random(root, rng, 300)
    scan = rocketstore.scan(root)
    rows = rows_of(scan)
    (root / "commitlog" / f"{64 << 10:020d}").unlink()
    with pytest.raises(rocketstore.CorruptRecordError, match="missing segment"):
        list(scan)
    found = rows_of(rocketstore.scan(root, on_damage="skip"))
    assert found == [row for row in rows if row["physical_offset"] // (64 << 10) != 1]


@pytest.mark.parametrize("number", [0, 2])
def test_a_segment_that_was_cut(tmp_path: Path, rng: random.Random, number: int) -> None:
    """It hides no other and is read as far as it goes; a blank that is left says that nothing was lost."""
    path, size = tmp_path / "store", 64 << 10
    fill_at_random(path, rng, 400)
    rows = rows_of(rocketstore.scan(path))
    begin, end = number * size, (number + 1) * size
    ends = [row["physical_offset"] + row["size"] for row in rows]
    last, second = (one([at for at in ends if begin < at < end]) for one in (max, min))
    for cut in (last + 8, last + 7, last + 1, last, last - 1, last - 10, second, second - 60):
        os.truncate(path / "commitlog" / f"{begin:020d}", cut - begin)
        scan = rocketstore.scan(path, on_damage="skip")
        expected = [
            row for row, at in zip(rows, ends, strict=True) if at <= max(cut, begin) or at > end
        ]
        assert rows_of(scan) == expected
        found = [(damage.start, damage.end) for damage in scan.report.damage]
        assert [row for part in scan.split(9_000) for row in rows_of(part)] == expected
        if cut == last + 8:
            assert (found, scan.report.lost_bytes) == ([], 0)
            continue
        good = max((at for at in ends if begin <= at <= cut), default=begin)
        assert (found, scan.report.lost_bytes) == ([(good, end)], end - good)
        with pytest.raises(rocketstore.CorruptRecordError, match=f"{good}:"):
            list(rocketstore.scan(path))


def test_a_segment_that_is_cut_while_a_scan_runs(rng: random.Random, root: Path) -> None:
    fill_at_random(root, rng, 400)
    chunks = iter(rocketstore.scan(root, chunk_bytes=1000))
    next(chunks)
    os.truncate(root / "commitlog" / f"{128 << 10:020d}", 100)
    with pytest.raises(rocketstore.ReadFailedError, match="was cut since"):
        list(chunks)


def trimmed(path: Path, segments: int) -> int:
    """Trims a store of segments of 64 KiB; where it begins then."""
    with rocketstore.open(path) as store:
        store.trim(before_offset=segments << 16)
        assert store.begin_offset == segments << 16
        return store.begin_offset


def test_what_is_trimmed_while_a_scan_runs(rng: random.Random, root: Path) -> None:
    """Retention is no damage: the log begins behind it by now, as for who comes later."""
    fill_at_random(root, rng, 400)
    rows = rows_of(rocketstore.scan(root))
    scan, skipping = rocketstore.scan(root), rocketstore.scan(root, on_damage="skip")
    late = rocketstore.scan(root, begin_offset=rows[3]["physical_offset"] + 1)
    running, seen = iter(rocketstore.scan(root, chunk_bytes=1000)), 0
    seen += next(running).rows
    begin = trimmed(root, 3)
    with pytest.raises(rocketstore.OffsetOutOfRangeError) as caught:
        for columns in running:
            seen += columns.rows
    # The segment that it stands in stays mapped.
    assert [row["physical_offset"] < 64 << 10 for row in rows].index(False) == seen
    found = caught.value
    assert (found.asked, found.minimum, found.status) == (64 << 10, begin, "OFFSET_TOO_SMALL")
    for whole, asked in ((scan, 0), (late, late.begin_offset)):
        with pytest.raises(rocketstore.OffsetOutOfRangeError) as caught:
            list(whole)
        assert (caught.value.asked, caught.value.minimum) == (asked, begin)
    left = [row for row in rows if row["physical_offset"] >= begin]
    assert rows_of(skipping) == left
    told = [(damage.start, damage.end, damage.reason) for damage in skipping.report.damage]
    assert (told, skipping.report.lost_bytes) == ([(0, begin, "trimmed")], begin)
    parts = skipping.split(64 << 10)
    assert [row for part in parts for row in rows_of(part)] == left
    assert sum(part.report.lost_bytes for part in parts) == begin


def test_a_scan_that_begins_inside_of_a_missing_segment(rng: random.Random, root: Path) -> None:
    """The end of a record may be passed over, not the rest of a segment."""
    fill_at_random(root, rng, 400)
    (root / "commitlog" / f"{64 << 10:020d}").unlink()
    start, end = (64 << 10) + 100, 128 << 10
    with pytest.raises(rocketstore.CorruptRecordError, match="missing segment"):
        list(rocketstore.scan(root, begin_offset=start))
    scan = rocketstore.scan(root, begin_offset=start, on_damage="skip")
    assert rows_of(scan)[0]["physical_offset"] == end
    assert [(damage.start, damage.end) for damage in scan.report.damage] == [(start, end)]


def test_a_lost_blank_is_stepped_over(tmp_path: Path) -> None:
    """Format 15.4: zeros to the end of a file that has a successor."""
    made = MadeStore(tmp_path / "store")
    put = made.fill(60)
    made.dispatch()
    last = max(r.physical_offset + r.size for r in put if r.physical_offset < 4096)
    made.write_log(last, b"\0" * 8)
    scan = rocketstore.scan(made.root, columns=["queue_offset"])
    assert len(rows_of(scan)) == 60


def test_nothing_behind_the_visible_end_is_read(root: Path) -> None:
    with rocketstore.open(root, durability="os", commit_log_file_size_bytes=4096) as store:
        writer = store.writer("orders")
        first = [writer.put(b"%d" % n).end_offset for n in range(30)]
        scan, beside = rocketstore.scan(store), rocketstore.scan(root)
        # What another reader may see is published by the dispatcher.
        deadline = time.monotonic() + 60
        while beside.end_offset < scan.end_offset and time.monotonic() < deadline:
            beside = rocketstore.scan(root)
        assert scan.end_offset == beside.end_offset == store.visible_offset
        for n in range(30, 60):
            writer.put(b"%d" % n)
        assert [row["body"] for row in rows_of(scan)] == [b"%d" % n for n in range(30)]
        assert rows_of(beside) == rows_of(scan)
        more = rocketstore.scan(store, begin_offset=scan.end_offset, aligned=True)
        assert [row["body"] for row in rows_of(more)] == [b"%d" % n for n in range(30, 60)]
        assert first[-1] <= scan.end_offset
    assert len(rows_of(rocketstore.scan(root))) == 60


def test_a_torn_tail_is_not_read(tmp_path: Path) -> None:
    """Beyond the recovered end nothing is believed, whole records included."""
    root, expect = rocketmq_store("torn-533", tmp_path)
    with rocketstore.open(root, "r") as store:
        end = store.end_offset
    scan = rocketstore.scan(root, columns=["physical_offset"])
    assert scan.end_offset == end
    assert all(row["physical_offset"] < end for row in rows_of(scan))
    assert expect["must"]


def test_times_leave_segments_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeStore(tmp_path / "store")
    day = 86_400_000
    for n in range(200):
        made.put(body=b"%d" % n, store_ms=1_700_000_000_000 + n * day)
    made.dispatch()
    wanted = {"begin": 1_700_000_000_000 + 100 * day}
    wanted["end"] = wanted["begin"] + 5 * day
    scan = rocketstore.scan(made.root, columns=["body"], **wanted)
    assert 0 < scan.begin_offset < scan.end_offset < made.end
    assert [row["body"] for row in rows_of(scan)] == [b"%d" % n for n in range(100, 105)]
    opened = []
    original = LogFiles.at
    monkeypatch.setattr(LogFiles, "at", lambda self, at: opened.append(at) or original(self, at))
    list(scan)
    assert min(opened) >= scan.begin_offset
    assert LogFiles(StoreLayout(made.root)).starts()[0] < scan.begin_offset


def test_a_time_that_is_damaged_leaves_no_segment_out(tmp_path: Path, rng: random.Random) -> None:
    """It would hide what follows, and the damage with it."""
    fill_at_random(tmp_path, rng, 300)
    rows = messages_of(tmp_path)
    *_, last = sorted((tmp_path / "commitlog").glob("0*"))
    while int(last.name) > rows[-1]["physical_offset"]:  # made ahead
        last = last.with_name(f"{int(last.name) - (64 << 10):020d}")
    damaged = next(row for row in rows if row["physical_offset"] == int(last.name))
    content = bytearray(last.read_bytes())
    at = 68 if damaged["sys_flag"] & 0x10 else 56  # behind an address of 16 or 4 bytes
    content[at + 2] ^= 0x10  # of its store time, which comes to lie ahead
    last.write_bytes(content)
    wanted = {"columns": ["physical_offset"], "end": rows[-1]["store_timestamp_ms"] + 1}
    with pytest.raises(rocketstore.CorruptRecordError, match="record crc"):
        list(rocketstore.scan(tmp_path, **wanted))
    scan = rocketstore.scan(tmp_path, on_damage="skip", **wanted)
    found = [row["physical_offset"] for row in rows_of(scan)]
    rows.remove(damaged)
    assert found == [row["physical_offset"] for row in rows]
    assert [damage.start for damage in scan.report.damage] == [damaged["physical_offset"]]


def test_an_empty_store(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        scan = rocketstore.scan(store)
        assert list(scan) == []
        assert scan.split() == []
    assert list(rocketstore.scan(tmp_path / "store")) == []
