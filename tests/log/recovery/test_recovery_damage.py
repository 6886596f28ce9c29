"""Damage is kept and told, and the records on both sides of it stay."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rocketstore.log.layout.paths import StoreLayout, segment_name
from tests.support.log_store import (
    SEGMENT,
    LogBuilder,
    durable_at,
    image,
    open_log,
    put_bytes,
    records_of,
    recover_store,
    served,
    starts_of,
    tail_is_zero,
)


@pytest.mark.parametrize("whose", ["ours", "foreign"])
def test_any_byte_flipped_leaves_the_other_records(
    whose: str, tmp_path: Path, rng: random.Random
) -> None:
    """K-16"""
    builder = LogBuilder().fill(30)
    layout = builder.write(tmp_path / "s")
    if whose == "ours":
        durable_at(layout, builder, 30, dispatched=0)
    inside = builder.records[-1][0]  # the last record has nothing behind it that proves it
    for offset in range(rng.randrange(23), inside, 23):
        segment = builder.segments[offset - offset % SEGMENT]
        flipped = segment[offset % SEGMENT] ^ rng.randrange(1, 256)
        put_bytes(layout, offset, bytes([flipped]))
        got = set(served(layout, ours=whose == "ours", access="private"))
        hit = {start for start, end in builder.records if start <= offset < end}
        assert set(starts_of(builder)) - got <= hit, offset
        put_bytes(layout, offset, bytes(segment[offset % SEGMENT :][:1]))


def test_damage_below_the_durable_offset_is_kept_and_told(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-20 D-26: no byte of it is changed, a copy is made, its topic is named."""
    durable_at(layout, builder, 50, dispatched=0)
    start, end = builder.records[12]
    put_bytes(layout, start + 95, b"\xee")
    before = image(layout.commit_log)
    report = recover_store(layout)
    assert [(d.start, d.end, d.reason, d.topics) for d in report.damage] == [
        (start, end, "body crc", ("orders",))
    ]
    assert report.lost
    assert image(layout.commit_log) == before
    assert len(report.quarantine) == 1
    assert served(layout) == [s for s in starts_of(builder) if s != start]


def test_damage_up_to_the_durable_offset_ends_there(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-20: nothing valid stands below D, but the log goes on at D."""
    durable_at(layout, builder, 20, dispatched=builder.records[17][0])
    # In front of the last record, which is part of the fingerprint.
    for start, _ in builder.records[17:19]:
        put_bytes(layout, start, b"\xaa" * 20)
    report = recover_store(layout)
    assert [(d.start, d.end) for d in report.damage] == [
        (builder.records[17][0], builder.records[18][1])
    ]
    assert report.end == builder.end


def test_whole_page_lost_below_the_durable_offset(tmp_path: Path) -> None:
    """Zeros in the middle: the records on both sides stay."""
    builder = LogBuilder(segment_size=16384).fill(80)
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 80, dispatched=0)
    put_bytes(layout, 4096, bytes(4096), 16384)
    report, log = open_log(layout)
    got = [m.physical_offset for m in records_of(log, report)]
    log.close()
    assert got == [s for s, e in builder.records if e <= 4096 or s >= 8192]


def test_islands_within_the_window_are_cut_and_kept(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-20: nothing can tell whether they were acknowledged, so they are named."""
    durable_at(layout, builder, 50)
    start, end = builder.records[55]
    put_bytes(layout, start + 100, b"\xff\xff\xff")
    report = recover_store(layout)
    assert report.end == start
    assert report.damage == ()
    assert [(i.start, i.end, i.records) for i in report.valid_runs] == [(end, builder.end, 4)]
    assert report.valid_runs[0].topics == ("orders",)
    assert tail_is_zero(layout, start)


def test_valid_record_beyond_the_window_proves_damage(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-20: so much was never unsynced; what lies in front of it was durable."""
    durable_at(layout, builder, 20)
    start, end = builder.records[22]
    put_bytes(layout, start + 100, b"\xff\xff\xff")
    report = recover_store(layout)
    assert [(d.start, d.end) for d in report.damage] == [(start, end)]
    assert (report.end, report.valid_runs) == (builder.end, ())


def test_record_crc_is_required_where_we_wrote(builder: LogBuilder, layout: StoreLayout) -> None:
    """The store time is in no other checksum."""
    durable_at(layout, builder, 20)
    start, _ = builder.records[22]
    put_bytes(layout, start + 60, b"\x55")
    assert [d.reason for d in recover_store(layout, access="private").damage] == ["record crc"]


def test_stale_record_crc_counts_in_foreign_ranges(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """A RocketMQ at defaults can put our message again with a stale property."""
    durable_at(layout, builder, 20)
    start, end = builder.records[22]
    put_bytes(layout, start + 60, b"\x55")
    report = recover_store(layout, foreign=((start, end),), access="private")
    assert (report.damage, report.record_crc_mismatches) == ((), 1)


def without_blank(builder: LogBuilder) -> tuple[int, LogBuilder]:
    """Zeros instead of the second blank; where it stood, and the builder."""
    end = max(end for _, end in builder.records if end < 2 * SEGMENT)
    builder.segments[SEGMENT][end - SEGMENT :] = bytes(2 * SEGMENT - end)
    return end, builder


def test_missing_blank_is_accepted_below_the_durable_offset(
    builder: LogBuilder, tmp_path: Path
) -> None:
    """D-24"""
    _, torn = without_blank(builder)
    layout = torn.write(tmp_path / "s")
    durable_at(layout, builder, 58, dispatched=0)
    report = recover_store(layout)
    assert (report.damage, report.end) == ((), builder.end)
    assert any("no blank" in note for note in report.notes)


def test_missing_blank_is_refused_when_queues_do_not_go_on(
    builder: LogBuilder, tmp_path: Path
) -> None:
    """D-24: records are missing between the files."""
    end, torn = without_blank(builder)
    last = max(start for start, stop in builder.records if stop == end)
    torn.segments[SEGMENT][last - SEGMENT :] = bytes(2 * SEGMENT - last)
    layout = torn.write(tmp_path / "s")
    durable_at(layout, builder, 58, dispatched=0)
    report = recover_store(layout)
    assert [(d.start, d.end) for d in report.damage] == [(last, 2 * SEGMENT)]
    assert report.end == builder.end


def test_missing_blank_above_the_durable_offset_is_a_tear(tmp_path: Path) -> None:
    """D-24: records behind it within the window are valid_runs, not the log."""
    builder = LogBuilder(segment_size=1024).fill(20)
    boundary = next(start for start, _ in builder.records if start % 1024 == 0 and start)
    count = starts_of(builder).index(boundary)
    end = builder.records[count - 1][1]
    for start in [s for s in builder.segments if s > boundary]:
        del builder.segments[start]
    builder.segments[end - end % 1024][end % 1024 :] = bytes(1024 - end % 1024)
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, count)
    report = recover_store(layout)
    assert (report.end, report.damage) == (end, ())
    assert report.valid_runs[0].start == boundary
    assert not (layout.commit_log / segment_name(boundary)).exists()
