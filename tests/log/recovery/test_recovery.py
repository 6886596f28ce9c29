"""Where a log of ours ends: the durable prefix stays, a torn tail goes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.recovery.recovery import Marks, RecoveryReport, recover
from tests.support.log_store import (
    SEGMENT,
    LogBuilder,
    durable_at,
    load_log,
    make_torn,
    put_bytes,
    recover_store,
    served,
    starts_of,
    tail_is_zero,
)


def test_log_without_a_fault_keeps_every_record(builder: LogBuilder, layout: StoreLayout) -> None:
    durable_at(layout, builder, 20)
    report = recover_store(layout)
    assert (report.mode, report.end, report.damage, report.cut) == (
        "unclean",
        builder.end,
        (),
        None,
    )
    assert report.last_record_start == builder.records[-1][0]
    assert report.last_store_timestamp_ms == builder.now_ms - 1
    assert served(layout, access="private") == starts_of(builder)


def test_scan_begins_at_the_durable_offset(builder: LogBuilder, layout: StoreLayout) -> None:
    """The prefix is not read again: D is the only thing that bounds the work."""
    durable = durable_at(layout, builder, 40)
    report = recover_store(layout)
    assert report.start == durable
    assert report.scanned_records == 20


def test_scan_begins_where_dispatch_does(builder: LogBuilder, layout: StoreLayout) -> None:
    """S001-38: dispatch walks without checksums, so damage in front of it has to be known."""
    durable_at(layout, builder, 40, dispatched=builder.records[10][0])
    put_bytes(layout, builder.records[20][0] + 90, b"\xff\xff")
    report = recover_store(layout)
    assert (report.start, report.dispatch_start) == (builder.records[10][0],) * 2
    assert [(d.start, d.end) for d in report.damage] == [builder.records[20]]


def test_clean_log_is_not_read(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-03"""
    durable_at(layout, builder, 60, clean=True)
    put_bytes(layout, builder.records[30][0] + 90, b"\xff\xff")
    report = recover_store(layout, clean=True)
    assert (report.mode, report.end, report.scanned_records) == ("clean", builder.end, 0)


def test_clean_mark_with_an_abort_file_is_a_crash(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-03"""
    durable_at(layout, builder, 60, clean=True)
    assert recover_store(layout, clean=False).mode == "unclean"


def test_clean_mark_with_bytes_behind_it_is_a_crash(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-03"""
    durable_at(layout, builder, 58, clean=True)
    report = recover_store(layout, clean=True)
    assert (report.mode, report.end) == ("unclean", builder.end)


def test_new_store_is_empty(tmp_path: Path) -> None:
    layout = LogBuilder().write(tmp_path / "s")
    report = recover_store(layout, ours=False, clean=True)
    assert (report.mode, report.begin, report.end) == ("clean", 0, 0)
    assert report.checkpoint is not None


def test_record_cut_at_any_byte_leaves_the_prefix(builder: LogBuilder, layout: StoreLayout) -> None:
    """S001-28"""
    durable_at(layout, builder, 55)
    whole = b"".join(builder.segments[start] for start in sorted(builder.segments))
    last_segment = builder.end - builder.end % SEGMENT
    for start, end in builder.records[-3:]:
        for cut in range(start, end + 1):
            put_bytes(layout, last_segment, whole[last_segment:cut].ljust(SEGMENT, b"\0"))
            expected = end if cut == end else start
            report = recover_store(layout, access="private")
            assert (report.end, report.damage) == (expected, ()), cut


def test_log_cut_at_any_byte_leaves_a_prefix(
    builder: LogBuilder, tmp_path: Path, rng: random.Random
) -> None:
    """Everything behind a byte is lost, whole segments too."""
    for _ in range(25):
        cut = rng.randrange(builder.records[9][1], builder.end)
        torn = builder.clone()
        for start in list(torn.segments):
            if start > cut:
                del torn.segments[start]
            elif cut < start + SEGMENT:
                torn.segments[start][cut - start :] = bytes(SEGMENT - (cut - start))
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        layout = torn.write(tmp_path / "s")
        durable_at(layout, builder, 10)
        expected = [start for start, end in builder.records if end <= cut]
        assert served(layout) == expected, cut


def test_torn_tail_is_cut_on_disk(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-21 D-22: zeros stand where it was, its bytes are in quarantine."""
    durable_at(layout, builder, 50)
    start, end = builder.records[-1]
    put_bytes(layout, start + 100, b"\xff\xff\xff")
    torn = bytes(builder.segments[start - start % SEGMENT][start % SEGMENT :][: end - start])
    report = recover_store(layout)
    assert report.end == start
    assert report.cut == (start, end)
    assert tail_is_zero(layout, start)
    (kept,) = report.quarantine
    copy = (Path(kept) / segment_name(start)).read_bytes()
    assert copy == torn[:100] + b"\xff\xff\xff" + torn[103:]


def test_garbage_behind_the_end_is_cut(
    builder: LogBuilder, rng: random.Random, layout: StoreLayout
) -> None:
    """D-08"""
    durable_at(layout, builder, 50)
    at = rng.randrange(builder.end, builder.end - builder.end % SEGMENT + SEGMENT - 64)
    put_bytes(layout, at, b"\x01" + rng.randbytes(50))
    report = recover_store(layout)
    assert report.end == builder.end
    assert report.cut is not None
    assert tail_is_zero(layout, builder.end)


def test_garbage_in_later_files_goes_with_them(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-21"""
    durable_at(layout, builder, 50)
    later = builder.end - builder.end % SEGMENT + SEGMENT
    (layout.commit_log / segment_name(later)).write_bytes(b"garbage".ljust(SEGMENT, b"\0"))
    report = recover_store(layout)
    assert report.end == builder.end
    assert tail_is_zero(layout, builder.end)
    assert (Path(report.quarantine[0]) / segment_name(later)).read_bytes() == b"garbage"


def test_unused_files_are_removed(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-07"""
    durable_at(layout, builder, 50)
    later = builder.end - builder.end % SEGMENT + SEGMENT
    for number in range(2):
        (layout.commit_log / segment_name(later + number * SEGMENT)).write_bytes(bytes(SEGMENT))
    report = recover_store(layout)
    assert (report.end, report.quarantine) == (builder.end, ())
    assert len(list(layout.commit_log.iterdir())) == len(builder.segments)


def test_removed_segments_lose_their_second_names(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-05: else the next open would bring them back."""
    durable_at(layout, builder, 10)
    last = builder.end - builder.end % SEGMENT
    (layout.live / segment_name(last)).hardlink_to(layout.commit_log / segment_name(last))
    (layout.live / segment_name(0)).hardlink_to(layout.commit_log / segment_name(0))
    put_bytes(layout, builder.records[11][0], bytes(SEGMENT - builder.records[11][0] % SEGMENT))
    for start in range(SEGMENT, last + 1, SEGMENT):
        put_bytes(layout, start, bytes(SEGMENT))
    put_bytes(layout, last + 100, b"x")
    assert recover_store(layout).end == builder.records[10][1]
    assert [path.name for path in layout.live.iterdir()] == [segment_name(0)]


def test_report_is_told_to_operators(builder: LogBuilder, tmp_path: Path) -> None:
    layout = make_torn(builder, tmp_path / "s")
    report = recover_store(layout)
    text = str(report)
    for part in ("unclean open", "cut off", "damage", "topics orders", "perhaps acknowledged"):
        assert part in text
    assert report.quarantine[0] in text
    assert "checkpoint" not in repr(report)


def test_progress_reaches_the_end(layout: StoreLayout) -> None:
    log = load_log(layout, "private")
    told: list[tuple[str, int, int]] = []
    report: RecoveryReport = recover(
        log,
        layout,
        Marks(),
        checkpoint=None,
        max_unflushed_bytes=1024,
        max_record_bytes=512,
        on_progress=lambda *progress: told.append(progress),
    )
    log.close()
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1] == ("log", report.end, report.end)
