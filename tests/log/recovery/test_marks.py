"""What is missing, of a wrong length, or not what our checkpoint speaks of."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketstore.errors import MissingSegmentsError
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.recovery.recovery import Marks, recover
from tests.support.log_store import (
    SEGMENT,
    LogBuilder,
    durable_at,
    image,
    load_log,
    open_log,
    put_bytes,
    records_of,
    recover_store,
    served,
    starts_of,
)


def test_missing_last_segment_is_refused(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-25"""
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(builder.end - builder.end % SEGMENT)).unlink()
    with pytest.raises(MissingSegmentsError, match="durable up to"):
        recover_store(layout)


def test_missing_log_is_refused(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-25: an unmounted disk must not become an empty store."""
    durable_at(layout, builder, 60)
    for path in layout.commit_log.iterdir():
        path.unlink()
    with pytest.raises(MissingSegmentsError):
        recover_store(layout)


@pytest.mark.parametrize("number", [0, 1])
def test_missing_segment_below_is_refused(
    number: int, builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-25 K-45"""
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(number * SEGMENT)).unlink()
    with pytest.raises(MissingSegmentsError):
        recover_store(layout)


def test_force_opens_a_log_with_a_gap(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-25"""
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
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-25"""
    durable_at(layout, builder, 60)
    for path in layout.commit_log.iterdir():
        path.unlink()
    log = load_log(layout)
    log.file_size = SEGMENT
    file = CheckpointFile(layout.own_checkpoint)
    report = recover(
        log,
        layout,
        Marks(own=file.load(), ours=True, clean=False),
        checkpoint=file,
        max_unflushed_bytes=1024,
        max_record_bytes=512,
        force=True,
    )
    log.close()
    file.close()
    assert report.end == 4 * SEGMENT
    assert report.end >= builder.end
    assert report.begin == report.dispatch_start == report.index_start == report.end


@pytest.mark.parametrize("number", [0, 1, 3])
def test_reading_never_refuses(number: int, builder: LogBuilder, layout: StoreLayout) -> None:
    """D-25: and changes nothing."""
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(number * SEGMENT)).unlink()
    before = image(layout.root)
    report = recover_store(layout, access="private")
    assert report.lost
    assert any("missing" in text for text in report.missing)
    assert image(layout.root) == before


def test_segments_below_the_minimum_are_removed(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-27: retention was interrupted between its mark and the removal."""
    durable_at(layout, builder, 60, minimum=2 * SEGMENT, clean=True)
    report = recover_store(layout, clean=True)
    assert report.begin == 2 * SEGMENT
    names = sorted(path.name for path in layout.commit_log.iterdir())
    assert names[0] == segment_name(2 * SEGMENT)


def test_segments_below_the_minimum_may_be_gone(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-27: retention was interrupted in the middle of the removal."""
    durable_at(layout, builder, 60, minimum=2 * SEGMENT, clean=True)
    (layout.commit_log / segment_name(0)).unlink()
    report = recover_store(layout, clean=True)
    assert (report.mode, report.begin) == ("clean", 2 * SEGMENT)


@pytest.mark.parametrize(
    "fields",
    [
        {"minimum": 1 << 40},
        {"minimum": "middle"},
        {"cut": 0},
        {"cut": 1 << 40},
        {"cut": 0, "minimum": 1 << 40},
        {"segment_count": (1 << 32) - 1},
        {"segment_count": 1 << 26},
    ],
    ids=str,
)
def test_a_checkpoint_that_contradicts_the_log_is_not_believed(
    fields: dict[str, int | str], builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-02: its checksum is right; what it says would cut records off, or hide them."""
    middle = builder.records[3][0]
    values = {name: middle if value == "middle" else int(value) for name, value in fields.items()}
    durable_at(layout, builder, 50, **values)
    report = recover_store(layout)
    assert (report.begin, report.end, report.cut, report.damage) == (0, builder.end, None, ())
    assert report.notes[0].startswith("our checkpoint is not used: ")
    assert served(layout) == starts_of(builder)


def test_short_last_file_is_filled_up(builder: LogBuilder, layout: StoreLayout) -> None:
    """K-44"""
    durable_at(layout, builder, 50)
    path = layout.commit_log / segment_name(builder.end - builder.end % SEGMENT)
    path.write_bytes(path.read_bytes()[: builder.end % SEGMENT])
    report = recover_store(layout)
    assert report.end == builder.end
    assert path.stat().st_size == SEGMENT


def test_long_last_file_is_cut_with_a_copy(builder: LogBuilder, layout: StoreLayout) -> None:
    """K-44 D-21"""
    durable_at(layout, builder, 50)
    last = builder.end - builder.end % SEGMENT
    path = layout.commit_log / segment_name(last)
    path.write_bytes(path.read_bytes() + b"more")
    report = recover_store(layout)
    assert report.end == builder.end
    assert path.stat().st_size == SEGMENT
    assert (Path(report.quarantine[0]) / segment_name(last + SEGMENT)).read_bytes() == b"more"


def test_empty_last_file_is_removed(builder: LogBuilder, layout: StoreLayout) -> None:
    """K-44"""
    durable_at(layout, builder, 50)
    path = layout.commit_log / segment_name(builder.end - builder.end % SEGMENT + SEGMENT)
    path.write_bytes(b"")
    assert recover_store(layout).end == builder.end
    assert not path.exists()


def test_short_middle_file_is_refused(builder: LogBuilder, layout: StoreLayout) -> None:
    """K-44"""
    durable_at(layout, builder, 50)
    path = layout.commit_log / segment_name(SEGMENT)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(MissingSegmentsError, match="100 bytes instead of 4096"):
        recover_store(layout)


@pytest.mark.parametrize("back", [1, 100, 1500])
def test_bytes_changed_below_the_durable_offset_discard_our_checkpoint(
    back: int, builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-02: the last record and the last 4 KiB are compared."""
    durable = durable_at(layout, builder, 60)
    log = load_log(layout, "read")
    file = log.find(durable - back)
    assert file is not None
    byte = file.read(durable - back - file.start_offset, 1)
    log.close()
    put_bytes(layout, durable - back, bytes([byte[0] ^ 1]))
    report = recover_store(layout)
    assert report.mode == "foreign-unclean"


def test_checkpoint_counts_only_when_we_wrote_last(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-01: what is new since then may be another program's."""
    durable = durable_at(layout, builder, 40)
    told: list[tuple[int, int]] = []
    report = recover_store(
        layout, ours=False, on_foreign=lambda start, end: told.append((start, end))
    )
    assert report.mode == "foreign-unclean"
    assert told == [(durable, builder.end)] == [report.foreign]


def test_checkpoint_of_a_longer_log_names_what_is_missing(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-25: only a warning when another program wrote last: it may have cut the log."""
    durable_at(layout, builder, 60)
    (layout.commit_log / segment_name(builder.end - builder.end % SEGMENT)).unlink()
    assert recover_store(layout, ours=False).mode == "foreign-unclean"


def test_new_checkpoint_speaks_of_the_log(builder: LogBuilder, layout: StoreLayout) -> None:
    report = recover_store(layout, ours=False)
    stored = CheckpointFile(layout.own_checkpoint).load()
    assert stored == report.checkpoint
    assert stored is not None
    assert (stored.flushed, stored.cut, stored.clean) == (builder.end, -1, False)
    assert stored.last_record_start == builder.records[-1][0]
    assert recover_store(layout).mode == "unclean"


def test_offsets_of_derived_files_are_clamped(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-17: and begin no later than what is durable; beyond it they may lie within a record."""
    durable = durable_at(layout, builder, 50, dispatched=builder.end - 1, indexed=builder.end)
    put_bytes(layout, builder.records[-1][0] + 100, b"\xff\xff\xff")
    report = recover_store(layout)
    assert report.end == builder.records[-1][0]
    assert report.dispatch_start == report.index_start == durable
    assert report.checkpoint is not None
    assert report.checkpoint.dispatched == durable
