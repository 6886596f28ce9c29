"""Recovery of our own logs: the durable prefix stays, a torn tail goes, damage is kept and told."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest

from rocketstore._native import syscalls
from rocketstore.errors import DiskFullError, MissingSegmentsError
from rocketstore.log import log_repair
from rocketstore.log.checkpoint import CheckpointFile
from rocketstore.log.layout import StoreLayout, segment_name
from rocketstore.log.recovery import RecoveryReport, discard_checkpoint
from tests.log.log_store import (
    SEGMENT,
    LogBuilder,
    image,
    load_log,
    mark_durable,
    open_log,
    put_bytes,
    records_of,
    recover_store,
    served,
)


@pytest.fixture
def builder() -> LogBuilder:
    """Sixty records in four segments."""
    return LogBuilder().fill(60)


def starts_of(builder: LogBuilder) -> list[int]:
    return [start for start, _ in builder.records]


def durable_at(layout: StoreLayout, builder: LogBuilder, count: int, **fields: int) -> int:
    """Our checkpoint says that the first `count` records are durable; their end."""
    start, end = builder.records[count - 1]
    mark_durable(layout, end, start, **fields)
    return end


def tail_is_zero(layout: StoreLayout, end: int) -> bool:
    log = load_log(layout, "read")
    try:
        file = log.find(end)
        assert file is not None
        assert log.last is file, "segments behind the end are left"
        return file.find_data(end - file.start_offset, file.size) == file.size
    finally:
        log.close()


# ---- where the log ends ----


def test_log_without_a_fault_keeps_every_record(builder: LogBuilder, tmp_path: Path) -> None:
    layout = builder.write(tmp_path / "s")
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


def test_scan_begins_at_the_durable_offset(builder: LogBuilder, tmp_path: Path) -> None:
    """The prefix is not read again: D is the only thing that bounds the work."""
    layout = builder.write(tmp_path / "s")
    durable = durable_at(layout, builder, 40)
    report = recover_store(layout)
    assert report.start == durable
    assert report.scanned_records == 20


def test_scan_begins_where_dispatch_does(builder: LogBuilder, tmp_path: Path) -> None:
    """S001-38: dispatch walks without checksums, so damage in front of it has to be known."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 40, dispatched=builder.records[10][0])
    put_bytes(layout, builder.records[20][0] + 90, b"\xff\xff")
    report = recover_store(layout)
    assert (report.start, report.dispatch_start) == (builder.records[10][0],) * 2
    assert [(d.start, d.end) for d in report.damage] == [builder.records[20]]


def test_clean_log_is_not_read(builder: LogBuilder, tmp_path: Path) -> None:
    """D-03"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60, clean=True)
    put_bytes(layout, builder.records[30][0] + 90, b"\xff\xff")
    report = recover_store(layout, clean=True)
    assert (report.mode, report.end, report.scanned_records) == ("clean", builder.end, 0)


def test_clean_mark_with_an_abort_file_is_a_crash(builder: LogBuilder, tmp_path: Path) -> None:
    """D-03"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60, clean=True)
    assert recover_store(layout, clean=False).mode == "unclean"


def test_clean_mark_with_bytes_behind_it_is_a_crash(builder: LogBuilder, tmp_path: Path) -> None:
    """D-03"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 58, clean=True)
    report = recover_store(layout, clean=True)
    assert (report.mode, report.end) == ("unclean", builder.end)


def test_new_store_is_empty(tmp_path: Path) -> None:
    layout = LogBuilder().write(tmp_path / "s")
    report = recover_store(layout, ours=False, clean=True)
    assert (report.mode, report.begin, report.end) == ("clean", 0, 0)
    assert report.checkpoint is not None


def test_record_cut_at_any_byte_leaves_the_prefix(builder: LogBuilder, tmp_path: Path) -> None:
    """S001-28"""
    layout = builder.write(tmp_path / "s")
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
    for _ in range(60):
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


def test_torn_tail_is_cut_on_disk(builder: LogBuilder, tmp_path: Path) -> None:
    """D-21 D-22: zeros stand where it was, its bytes are in quarantine."""
    layout = builder.write(tmp_path / "s")
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
    builder: LogBuilder, tmp_path: Path, rng: random.Random
) -> None:
    """D-08"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50)
    at = rng.randrange(builder.end, builder.end - builder.end % SEGMENT + SEGMENT - 64)
    put_bytes(layout, at, b"\x01" + rng.randbytes(50))
    report = recover_store(layout)
    assert report.end == builder.end
    assert report.cut is not None
    assert tail_is_zero(layout, builder.end)


def test_garbage_in_later_files_goes_with_them(builder: LogBuilder, tmp_path: Path) -> None:
    """D-21"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50)
    later = builder.end - builder.end % SEGMENT + SEGMENT
    (layout.commit_log / segment_name(later)).write_bytes(b"garbage".ljust(SEGMENT, b"\0"))
    report = recover_store(layout)
    assert report.end == builder.end
    assert tail_is_zero(layout, builder.end)
    assert (Path(report.quarantine[0]) / segment_name(later)).read_bytes() == b"garbage"


def test_unused_files_are_removed(builder: LogBuilder, tmp_path: Path) -> None:
    """D-07"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50)
    later = builder.end - builder.end % SEGMENT + SEGMENT
    for number in range(2):
        (layout.commit_log / segment_name(later + number * SEGMENT)).write_bytes(bytes(SEGMENT))
    report = recover_store(layout)
    assert (report.end, report.quarantine) == (builder.end, ())
    assert len(list(layout.commit_log.iterdir())) == len(builder.segments)


def test_removed_segments_lose_their_second_names(builder: LogBuilder, tmp_path: Path) -> None:
    """D-05: else the next open would bring them back."""
    layout = builder.write(tmp_path / "s")
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


# ---- damage ----


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
    for offset in range(rng.randrange(7), inside, 7):
        segment = builder.segments[offset - offset % SEGMENT]
        flipped = segment[offset % SEGMENT] ^ rng.randrange(1, 256)
        put_bytes(layout, offset, bytes([flipped]))
        got = set(served(layout, ours=whose == "ours", access="private"))
        hit = {start for start, end in builder.records if start <= offset < end}
        assert set(starts_of(builder)) - got <= hit, offset
        put_bytes(layout, offset, segment[offset % SEGMENT :][:1])


def test_damage_below_the_durable_offset_is_kept_and_told(
    builder: LogBuilder, tmp_path: Path
) -> None:
    """D-20 D-26: no byte of it is changed, a copy is made, its topic is named."""
    layout = builder.write(tmp_path / "s")
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


def test_damage_up_to_the_durable_offset_ends_there(builder: LogBuilder, tmp_path: Path) -> None:
    """D-20: nothing valid stands below D, but the log goes on at D."""
    layout = builder.write(tmp_path / "s")
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


def test_islands_within_the_window_are_cut_and_kept(builder: LogBuilder, tmp_path: Path) -> None:
    """D-20: nothing can tell whether they were acknowledged, so they are named."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50)
    start, end = builder.records[55]
    put_bytes(layout, start + 100, b"\xff\xff\xff")
    report = recover_store(layout)
    assert report.end == start
    assert report.damage == ()
    assert [(i.start, i.end, i.records) for i in report.islands] == [(end, builder.end, 4)]
    assert report.islands[0].topics == ("orders",)
    assert tail_is_zero(layout, start)


def test_valid_record_beyond_the_window_proves_damage(builder: LogBuilder, tmp_path: Path) -> None:
    """D-20: so much was never unsynced; what lies in front of it was durable."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 20)
    start, end = builder.records[22]
    put_bytes(layout, start + 100, b"\xff\xff\xff")
    report = recover_store(layout)
    assert [(d.start, d.end) for d in report.damage] == [(start, end)]
    assert (report.end, report.islands) == (builder.end, ())


def test_record_crc_is_required_where_we_wrote(builder: LogBuilder, tmp_path: Path) -> None:
    """The store time is in no other checksum."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 20)
    start, _ = builder.records[22]
    put_bytes(layout, start + 60, b"\x55")
    assert [d.reason for d in recover_store(layout, access="private").damage] == ["record crc"]


def test_stale_record_crc_counts_in_foreign_ranges(builder: LogBuilder, tmp_path: Path) -> None:
    """A RocketMQ at defaults can put our message again with a stale property."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 20)
    start, end = builder.records[22]
    put_bytes(layout, start + 60, b"\x55")
    report = recover_store(layout, foreign=((start, end),), access="private")
    assert (report.damage, report.record_crc_mismatches) == ((), 1)


# ---- a blank that is not there (D-24) ----


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
    """D-24: records behind it within the window are islands, not the log."""
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
    assert report.islands[0].start == boundary
    assert not (layout.commit_log / segment_name(boundary)).exists()


# ---- missing segments (D-25, D-27) ----


def test_missing_last_segment_is_refused(builder: LogBuilder, tmp_path: Path) -> None:
    """D-25"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(builder.end - builder.end % SEGMENT)).unlink()
    with pytest.raises(MissingSegmentsError, match="durable up to"):
        recover_store(layout)


def test_missing_log_is_refused(builder: LogBuilder, tmp_path: Path) -> None:
    """D-25: an unmounted disk must not become an empty store."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60)
    for path in layout.commit_log.iterdir():
        path.unlink()
    with pytest.raises(MissingSegmentsError):
        recover_store(layout)


@pytest.mark.parametrize("number", [0, 1])
def test_missing_segment_below_is_refused(number: int, builder: LogBuilder, tmp_path: Path) -> None:
    """D-25 K-45"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(number * SEGMENT)).unlink()
    with pytest.raises(MissingSegmentsError):
        recover_store(layout)


def test_force_opens_a_log_with_a_gap(builder: LogBuilder, tmp_path: Path) -> None:
    """D-25"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(SEGMENT)).unlink()
    report, log = open_log(layout, force=True, derived_end=0)
    got = [m.physical_offset for m in records_of(log, report)]
    log.close()
    assert got == [s for s in starts_of(builder) if s // SEGMENT != 1]
    assert [(d.start, d.end, d.reason) for d in report.damage] == [
        (SEGMENT, 2 * SEGMENT, "missing segment")
    ]


def test_forced_open_of_a_lost_log_uses_no_offset_twice(
    builder: LogBuilder, tmp_path: Path
) -> None:
    """D-25"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60)
    for path in layout.commit_log.iterdir():
        path.unlink()
    log = load_log(layout)
    assert log.file_size is None
    report, log = open_log(layout, force=True)
    log.close()
    assert report.end == 0 or report.end >= builder.end


@pytest.mark.parametrize("number", [0, 1, 3])
def test_reading_never_refuses(number: int, builder: LogBuilder, tmp_path: Path) -> None:
    """D-25: and changes nothing."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(number * SEGMENT)).unlink()
    before = image(layout.root)
    report = recover_store(layout, access="private")
    assert any("missing" in note for note in report.notes)
    assert image(layout.root) == before


def test_segments_below_the_minimum_are_removed(builder: LogBuilder, tmp_path: Path) -> None:
    """D-27: retention was interrupted between its mark and the removal."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60, minimum=2 * SEGMENT, clean=True)
    report = recover_store(layout, clean=True)
    assert report.begin == 2 * SEGMENT
    names = sorted(path.name for path in layout.commit_log.iterdir())
    assert names[0] == segment_name(2 * SEGMENT)


def test_segments_below_the_minimum_may_be_gone(builder: LogBuilder, tmp_path: Path) -> None:
    """D-27: retention was interrupted in the middle of the removal."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60, minimum=2 * SEGMENT, clean=True)
    (layout.commit_log / segment_name(0)).unlink()
    report = recover_store(layout, clean=True)
    assert (report.mode, report.begin) == ("clean", 2 * SEGMENT)


# ---- files of a wrong length ----


def test_short_last_file_is_filled_up(builder: LogBuilder, tmp_path: Path) -> None:
    """K-44"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50)
    path = layout.commit_log / segment_name(builder.end - builder.end % SEGMENT)
    path.write_bytes(path.read_bytes()[: builder.end % SEGMENT])
    report = recover_store(layout)
    assert report.end == builder.end
    assert path.stat().st_size == SEGMENT


def test_long_last_file_is_cut_with_a_copy(builder: LogBuilder, tmp_path: Path) -> None:
    """K-44 D-21"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50)
    last = builder.end - builder.end % SEGMENT
    path = layout.commit_log / segment_name(last)
    path.write_bytes(path.read_bytes() + b"more")
    report = recover_store(layout)
    assert report.end == builder.end
    assert path.stat().st_size == SEGMENT
    assert (Path(report.quarantine[0]) / segment_name(last + SEGMENT)).read_bytes() == b"more"


def test_empty_last_file_is_removed(builder: LogBuilder, tmp_path: Path) -> None:
    """K-44"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50)
    path = layout.commit_log / segment_name(builder.end - builder.end % SEGMENT + SEGMENT)
    path.write_bytes(b"")
    assert recover_store(layout).end == builder.end
    assert not path.exists()


def test_short_middle_file_is_refused(builder: LogBuilder, tmp_path: Path) -> None:
    """K-44"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50)
    path = layout.commit_log / segment_name(SEGMENT)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(MissingSegmentsError, match="100 bytes instead of 4096"):
        recover_store(layout)


# ---- our checkpoint (D-02) ----


@pytest.mark.parametrize("back", [1, 100, 1500])
def test_bytes_changed_below_the_durable_offset_discard_our_checkpoint(
    back: int, builder: LogBuilder, tmp_path: Path
) -> None:
    """D-02: the last record and the last 4 KiB are compared."""
    layout = builder.write(tmp_path / "s")
    durable = durable_at(layout, builder, 60)
    log = load_log(layout, "read")
    file = log.find(durable - back)
    assert file is not None
    byte = file.read(durable - back - file.start_offset, 1)
    log.close()
    put_bytes(layout, durable - back, bytes([byte[0] ^ 1]))
    report = recover_store(layout)
    assert report.mode == "foreign-unclean"


def test_checkpoint_counts_only_when_we_wrote_last(builder: LogBuilder, tmp_path: Path) -> None:
    """D-01: what is new since then may be another program's."""
    layout = builder.write(tmp_path / "s")
    durable = durable_at(layout, builder, 40)
    told: list[tuple[int, int]] = []
    report = recover_store(
        layout, ours=False, on_foreign=lambda start, end: told.append((start, end))
    )
    assert report.mode == "foreign-unclean"
    assert told == [(durable, builder.end)] == [report.foreign]


def test_checkpoint_of_a_longer_log_names_what_is_missing(
    builder: LogBuilder, tmp_path: Path
) -> None:
    """D-25: only a warning when another program wrote last: it may have cut the log."""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(builder.end - builder.end % SEGMENT)).unlink()
    assert recover_store(layout, ours=False).mode == "foreign-unclean"


def test_new_checkpoint_speaks_of_the_log(builder: LogBuilder, tmp_path: Path) -> None:
    layout = builder.write(tmp_path / "s")
    report = recover_store(layout, ours=False)
    stored = CheckpointFile(layout.own_checkpoint).load()
    assert stored == report.checkpoint
    assert stored is not None
    assert (stored.flushed, stored.cut, stored.clean) == (builder.end, -1, False)
    assert stored.last_record_start == builder.records[-1][0]
    assert recover_store(layout).mode == "unclean"


def test_offsets_of_derived_files_are_clamped(builder: LogBuilder, tmp_path: Path) -> None:
    """D-17"""
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 50, dispatched=builder.end, indexed=builder.end)
    put_bytes(layout, builder.records[-1][0] + 100, b"\xff\xff\xff")
    report = recover_store(layout)
    assert report.dispatch_start == report.index_start == builder.records[-1][0]
    assert report.checkpoint is not None
    assert report.checkpoint.dispatched == report.end


# ---- again, and after a crash in the middle ----


def make_torn(builder: LogBuilder, root: Path, *, ours: bool = True) -> StoreLayout:
    """Damage below D, a tear above it with islands, and a later file."""
    layout = builder.write(root)
    durable_at(layout, builder, 30, dispatched=0, max_unflushed=1 << 20)
    if not ours:
        file = CheckpointFile(layout.own_checkpoint)
        discard_checkpoint(file, file.load())
        file.close()
    put_bytes(layout, builder.records[5][0] + 95, b"\xee")
    put_bytes(layout, builder.records[33][0] + 95, b"\xee\xff\x11")
    return layout


def test_second_recovery_changes_no_byte(builder: LogBuilder, tmp_path: Path) -> None:
    layout = make_torn(builder, tmp_path / "s")
    first = recover_store(layout)
    assert first.cut is not None
    assert first.damage
    before = image(layout.root)
    second = recover_store(layout)
    assert image(layout.root) == before
    assert (second.end, second.damage, second.cut) == (first.end, first.damage, None)


CALLS = ("pwrite", "fdatasync", "fsync", "unlink", "sync_directory", "mkdir", "ftruncate")


class Interrupted(Exception):
    """The process died here."""


def interrupt(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Every change of the disk from number `after` on dies."""
    left = [after]

    def counted(name: str) -> None:
        call = getattr(syscalls, name)

        def counting(*arguments: object) -> object:
            left[0] -= 1
            if left[0] < 0:
                raise Interrupted(name)
            return call(*arguments)

        monkeypatch.setattr(syscalls, name, counting)

    for name in CALLS:
        counted(name)


def kept_bytes(layout: StoreLayout) -> dict[int, int]:
    """What finished copies hold, byte by byte."""
    kept = {}
    for manifest in layout.quarantine.glob("*/manifest.json"):
        for path in manifest.parent.glob("[0-9]" * 20):
            for position, byte in enumerate(path.read_bytes()):
                if byte:
                    kept[int(path.name) + position] = byte
    return kept


@pytest.mark.parametrize("whose", ["ours", "foreign"])
def test_crash_at_any_step_of_a_cut_ends_in_the_same_state(
    whose: str, builder: LogBuilder, tmp_path: Path
) -> None:
    """D-21 D-22: and no byte is lost on the way."""
    ours = whose == "ours"
    if not ours:  # a foreign tear has nothing valid behind it
        for start in [s for s in builder.segments if s > 2 * SEGMENT]:
            builder.segments[start][:] = b"\x07" * SEGMENT
        builder.segments[2 * SEGMENT][1500:] = b"\x07" * (SEGMENT - 1500)
    layout = make_torn(builder, tmp_path / "whole", ours=ours)
    report = recover_store(layout, ours=ours)
    assert report.cut is not None
    expected, kept = image(layout.commit_log), kept_bytes(layout)
    steps = 0
    while True:
        layout = make_torn(builder, tmp_path / f"s{steps}", ours=ours)
        with pytest.MonkeyPatch.context() as monkeypatch:
            interrupt(monkeypatch, steps)
            try:
                recover_store(layout, ours=ours)
                break
            except Interrupted:
                pass
        again = recover_store(layout)
        assert again.end == report.end, steps
        assert image(layout.commit_log) == expected, steps
        assert kept_bytes(layout) == kept, steps
        shutil.rmtree(layout.root)
        steps += 1
    assert steps > 15


def test_begun_cut_is_finished_where_it_was_decided(builder: LogBuilder, tmp_path: Path) -> None:
    """D-22: valid records behind the mark are not the log."""
    layout = builder.write(tmp_path / "s")
    end = durable_at(layout, builder, 50, cut=builder.records[49][1])
    report = recover_store(layout)
    assert report.end == end
    assert report.cut == (end, builder.end)
    assert report.checkpoint is not None
    assert report.checkpoint.cut == -1
    assert tail_is_zero(layout, end)


def test_durable_offset_advances_while_recovery_goes_on(
    builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-23: a recovery that is killed resumes there."""
    monkeypatch.setattr(log_repair, "ADVANCE_BYTES", 2 * SEGMENT)
    layout = builder.write(tmp_path / "s")
    durable_at(layout, builder, 1)
    monkeypatch.setattr(
        log_repair.LogRepair, "settle", lambda *_, **__: (_ for _ in ()).throw(Interrupted())
    )
    with pytest.raises(Interrupted):
        recover_store(layout)
    stored = CheckpointFile(layout.own_checkpoint).load()
    assert stored is not None
    assert 2 * SEGMENT <= stored.flushed <= 4 * SEGMENT
    monkeypatch.undo()
    report = recover_store(layout)
    assert report.start == min(stored.flushed, stored.dispatched)
    assert report.end == builder.end


def test_no_room_for_the_copy_leaves_the_tail(
    builder: LogBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-21: nothing is zeroed without a copy."""
    layout = make_torn(builder, tmp_path / "s")
    before = image(layout.commit_log)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(syscalls, "ftruncate", full)
        with pytest.raises(DiskFullError):
            recover_store(layout)
    assert image(layout.commit_log) == before
    assert recover_store(layout).cut is not None


def test_private_access_changes_nothing(builder: LogBuilder, tmp_path: Path) -> None:
    layout = make_torn(builder, tmp_path / "s")
    before = image(layout.root)
    report = recover_store(layout, access="private")
    assert image(layout.root) == before
    written = recover_store(layout)
    assert (report.end, report.damage, report.islands) == (
        written.end,
        written.damage,
        written.islands,
    )


def test_random_bytes_never_raise(tmp_path: Path, rng: random.Random) -> None:
    """D-25: whatever lies there, reading and crash recovery give an answer, and the same one again."""
    for round_number in range(40):
        builder = LogBuilder(segment_size=1024).fill(30)
        layout = builder.write(tmp_path / str(round_number))
        ours = rng.random() < 0.7
        if ours:
            mark = 12 + rng.randrange(10)
            durable_at(layout, builder, mark, dispatched=0)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(max(builder.segments) + 1024)
            garbage = rng.randbytes(rng.choice((1, 3, 50, 400)))
            put_bytes(layout, at, garbage[: 1024 - at % 1024], 1024)
        before = recover_store(layout, ours=ours, access="private")
        first = recover_store(layout, ours=ours)
        assert first.end == before.end
        after = image(layout.root)
        assert recover_store(layout).end == first.end
        assert image(layout.root) == after


# ---- what is told ----


def test_report_is_told_to_operators(builder: LogBuilder, tmp_path: Path) -> None:
    layout = make_torn(builder, tmp_path / "s")
    report = recover_store(layout)
    text = str(report)
    for part in ("unclean open", "cut off", "damage", "topics orders", "perhaps acknowledged"):
        assert part in text
    assert report.quarantine[0] in text
    assert "checkpoint" not in repr(report)


def test_progress_reaches_the_end(builder: LogBuilder, tmp_path: Path) -> None:
    from rocketstore.log.recovery import Marks, recover

    layout = builder.write(tmp_path / "s")
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
