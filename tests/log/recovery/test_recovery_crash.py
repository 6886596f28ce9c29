"""A recovery that is killed anywhere, or done again, ends in the same state."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest

from rocketstore._native.os import syscalls
from rocketstore.errors import DiskFullError
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.recovery import repair as log_repair
from tests.support.log_store import (
    SEGMENT,
    LogBuilder,
    durable_at,
    image,
    make_torn,
    mark_durable,
    put_bytes,
    recover_store,
    tail_is_zero,
)


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


def test_begun_cut_is_finished_where_it_was_decided(
    builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-22: valid records behind the mark are not the log. None of them begins there."""
    end = durable_at(layout, builder, 50, cut=builder.records[49][1])
    put_bytes(layout, builder.records[50][0] + 95, b"\xee")
    report = recover_store(layout)
    assert report.end == end
    assert report.cut == (end, builder.end)
    assert report.checkpoint is not None
    assert report.checkpoint.cut == -1
    assert tail_is_zero(layout, end)


@pytest.mark.parametrize("count", [0, 12, 50])
def test_no_cut_is_finished_at_a_whole_record(
    count: int, builder: LogBuilder, layout: StoreLayout
) -> None:
    """D-22: no recovery decides one there, so it costs nothing that was acknowledged."""
    if count:
        end = durable_at(layout, builder, count, cut=builder.records[count - 1][1])
    else:
        end = mark_durable(layout, 0, -1, cut=0).cut
    report = recover_store(layout)
    assert (report.end, report.cut, report.damage) == (builder.end, None, ())
    assert report.notes == (f"a cut at {end} is not finished: a whole record begins there",)
    assert report.checkpoint is not None
    assert (report.checkpoint.cut, report.checkpoint.flushed) == (-1, builder.end)


def test_no_cut_is_finished_at_a_blank(builder: LogBuilder, layout: StoreLayout) -> None:
    """D-22: the log goes on in the next segment."""
    ends = {end for _, end in builder.records}
    last = max(end for end in ends if end < SEGMENT)
    durable_at(layout, builder, sorted(ends).index(last) + 1, cut=last)
    report = recover_store(layout)
    assert (report.end, report.cut) == (builder.end, None)


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
    assert (report.end, report.damage, report.valid_runs) == (
        written.end,
        written.damage,
        written.valid_runs,
    )


def test_random_bytes_never_raise(tmp_path: Path, rng: random.Random) -> None:
    """D-25: whatever lies there, reading and crash recovery give an answer, and the same one again."""
    for round_number in range(15):
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
