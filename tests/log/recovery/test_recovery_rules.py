"""Where recovery begins when RocketMQ wrote last: its own rule (format 14.2, 14.3), made safe."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.log.layout.paths import StoreLayout, segment_name
from tests.support.log_store import (
    SEGMENT,
    LogBuilder,
    durable_at,
    image,
    put_bytes,
    recover_store,
    tail_is_zero,
)

MARGIN_MS = 3000


@pytest.fixture
def builder() -> LogBuilder:
    """A hundred records in seven segments, one a second."""
    builder = LogBuilder()
    for number in range(100):
        builder.add(bytes([65 + number % 26]) * (20 + number * 37 % 200), "orders", number % 3)
        builder.now_ms += 999
    return builder


def first_time(builder: LogBuilder, segment: int) -> int:
    """Store time of the record that a segment begins with."""
    number = [start for start, _ in builder.records].index(segment * SEGMENT)
    return 1_700_000_000_000 + number * 1000


def start_of(layout: StoreLayout, builder: LogBuilder, times: tuple[int, int, int]) -> int:
    """Where a recovery after a crash begins; all is dispatched, so that only the times count."""
    return recover_store(
        layout,
        ours=False,
        access="private",
        rocketmq_times=times,
        derived_end=builder.end,
    ).start


def test_clean_store_is_read_from_its_third_last_file(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """S001-22"""
    last = max(builder.segments)
    report = recover_store(layout, ours=False, clean=True, derived_end=builder.end)
    assert (report.mode, report.start) == ("foreign-clean", last - 2 * SEGMENT)


def test_clean_store_of_two_files_is_read_from_the_first(tmp_path: Path) -> None:
    """S001-22"""
    builder = LogBuilder().fill(25)
    assert len(builder.segments) == 2
    layout = builder.write(tmp_path / "s")
    assert recover_store(layout, ours=False, clean=True, derived_end=builder.end).start == 0


def test_walk_goes_from_record_to_record_and_file_to_file(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """S001-26 S001-27: on at a record, to the next file at a blank, stop at what is neither."""
    report = recover_store(layout, ours=False, derived_end=0)
    assert (report.start, report.end) == (0, builder.end)
    assert (report.scanned_records, report.last_record_start) == (100, builder.records[-1][0])


def test_files_behind_the_end_are_removed(builder: LogBuilder, layout: StoreLayout) -> None:
    """S001-29"""
    end = builder.records[-1][0]
    put_bytes(layout, end, b"\x07" * 100)
    later = max(builder.segments) + SEGMENT
    (layout.commit_log / segment_name(later)).write_bytes(b"\x07".ljust(SEGMENT, b"\0"))
    report = recover_store(layout, ours=False)
    assert report.end == end
    assert tail_is_zero(layout, end)


def test_log_without_files_begins_at_0(tmp_path: Path) -> None:
    """S001-31"""
    layout = LogBuilder().write(tmp_path / "s")
    report = recover_store(layout, ours=False, clean=False)
    assert (report.begin, report.end, report.dispatch_start) == (0, 0, 0)


@pytest.mark.parametrize("segment", [1, 3, 5])
def test_crashed_store_is_read_from_the_file_that_its_checkpoint_names(
    segment: int, builder: LogBuilder, layout: StoreLayout
) -> None:
    """S001-30 S001-35: the last file whose first record is not newer than both times."""
    moment = first_time(builder, segment) + MARGIN_MS
    later = moment + 10**6
    assert start_of(layout, builder, (moment, later, 0)) == segment * SEGMENT
    assert start_of(layout, builder, (later, moment, 0)) == segment * SEGMENT
    assert start_of(layout, builder, (later, moment - 1, 0)) == (segment - 1) * SEGMENT


def test_index_time_counts_where_the_index_is_safe(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """S001-34"""
    late = first_time(builder, 5) + MARGIN_MS
    index = first_time(builder, 2)
    for safe, expected in ((True, 2), (False, 5)):
        report = recover_store(
            layout,
            ours=False,
            access="private",
            rocketmq_times=(late, late, index),
            index_safe=safe,
            derived_end=builder.end,
        )
        assert report.start == expected * SEGMENT


@pytest.mark.parametrize(
    ("place", "data"), [(4, bytes(4)), (4, bytes.fromhex("cbd43194")), (56, bytes(8))]
)
def test_file_that_begins_otherwise_is_passed_over(
    place: int, data: bytes, builder: LogBuilder, layout: StoreLayout
) -> None:
    """S001-32 S001-33: no message magic, or no store time."""
    late = first_time(builder, 5) + MARGIN_MS
    put_bytes(layout, 5 * SEGMENT + place, data)
    assert start_of(layout, builder, (late, late, 0)) == 4 * SEGMENT


def test_no_file_matches(builder: LogBuilder, layout: StoreLayout) -> None:
    """S001-36: all is read."""
    assert start_of(layout, builder, (0, 0, 0)) == 0


def test_start_is_lowered_to_where_the_queues_end(builder: LogBuilder, layout: StoreLayout) -> None:
    """K-10: the times of a checkpoint can be ahead of what the queues have."""
    late = first_time(builder, 5) + MARGIN_MS
    for end, expected in ((2 * SEGMENT + 100, 2), (builder.end, 5), (0, 0), (None, 0)):
        report = recover_store(
            layout,
            ours=False,
            access="private",
            rocketmq_times=(late, late, 0),
            derived_end=end,
        )
        assert (report.start, report.dispatch_start) == (expected * SEGMENT,) * 2


def test_wish_to_dispatch_lowers_the_start(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-18: the queues are built anew, so all has to be checked."""
    durable_at(layout, builder, 90)
    report = recover_store(layout, dispatch_from=0, access="private")
    assert (report.start, report.dispatch_start) == (0, 0)
    assert report.index_start == builder.records[89][1]
    report = recover_store(layout, index_from=SEGMENT, access="private")
    assert (report.start, report.index_start) == (SEGMENT, SEGMENT)


def test_bytes_before_the_start_are_not_looked_at(builder: LogBuilder, layout: StoreLayout) -> None:
    """Q-14: older damage is found by a reader, or by `verify`."""
    put_bytes(layout, builder.records[3][0] + 95, b"\xff")
    before = image(layout.commit_log)
    report = recover_store(layout, ours=False, clean=True, derived_end=builder.end)
    assert report.damage == ()
    assert image(layout.commit_log) == before
