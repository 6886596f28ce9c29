"""Segments in the middle that are lost for good: files of their size take their place, on demand (D-26)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import rocketstore
from rocketstore import tools
from rocketstore.cli import exit_codes
from tests.api.tools.test_repair import SHAPE, expected, fill, invoke, is_sound, served
from tests.cli.conftest import Invoke
from tests.support.made_store import BODY_AT
from tests.support.small_store import SEGMENT, open_small

__all__ = ["invoke"]


def lose(root: Path, *numbers: int) -> None:
    for number in numbers:
        (root / "commitlog" / f"{number * SEGMENT:020d}").unlink()


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("numbers", [(1,), (1, 2, 4)])
def test_all_that_is_left_is_served(numbers: tuple[int, ...], crashed: bool, root: Path) -> None:
    """And the store is like any other again."""
    messages = fill(root)
    lose(root, *numbers)
    if crashed:
        (root / "abort").touch()
    with pytest.raises(rocketstore.MissingSegmentsError):
        tools.repair(root, **SHAPE)
    report = tools.repair(root, fill_missing=True, **SHAPE)
    lost = {m.physical_offset for m in messages if m.physical_offset // SEGMENT in numbers}
    assert report.ok and report.units == len(lost), str(report)
    starts = [number * SEGMENT for number in numbers]
    assert [(one.start, one.end) for one in report.ranges] == [(at, at + SEGMENT) for at in starts]
    for number in numbers:
        file = root / "commitlog" / f"{number * SEGMENT:020d}"
        beside = (root / "commitlog" / f"{0:020d}").stat()
        assert (file.stat().st_size, file.stat().st_mode) == (SEGMENT, beside.st_mode)
    assert served(root) == expected(messages, lost)
    is_sound(root)
    with open_small(root, "r+") as store:
        assert store.recovery.mode == "clean"
        last = messages[-1]
        put = store.writer(last.topic, queue_id=last.queue_id).put(b"new")
        assert put.queue_offset == last.queue_offset + 1
    assert not tools.repair(root, fill_missing=True, **SHAPE).ranges


@pytest.mark.parametrize("nothing", [True, False])
@pytest.mark.parametrize("missing", [(), (3,)], ids=["short", "and missing"])
def test_what_another_program_cut(missing: tuple[int, ...], nothing: bool, root: Path) -> None:
    """What is left of a file in the middle stays: the rest is lost as a missing file is."""
    messages = fill(root)
    lose(root, *missing)
    inside = [m for m in messages if m.physical_offset // SEGMENT == 1 and len(m.body) > 20]
    low = SEGMENT if nothing else inside[len(inside) // 2].physical_offset
    left = 0 if nothing else low + BODY_AT + 20 - SEGMENT
    os.truncate(root / "commitlog" / f"{SEGMENT:020d}", left)
    with pytest.raises(rocketstore.MissingSegmentsError):
        tools.repair(root, **SHAPE)
    refused = tools.repair(root, dry_run=True, **SHAPE)
    assert refused.ranges and not any(one.done for one in refused.ranges), str(refused)
    promised = tools.repair(root, dry_run=True, fill_missing=True, **SHAPE)
    done = tools.repair(root, fill_missing=True, **SHAPE)
    assert done.ok
    assert [(one.start, one.end, one.done) for one in promised.ranges] == [
        (one.start, one.end, one.done) for one in done.ranges
    ]
    assert promised.units == done.units
    lost = {m.physical_offset for m in messages if m.physical_offset // SEGMENT in missing}
    lost |= {m.physical_offset for m in messages if low <= m.physical_offset < 2 * SEGMENT}
    assert served(root) == expected(messages, lost)
    is_sound(root)
    assert not tools.repair(root, **SHAPE).ranges


def test_a_name_far_beyond_the_others_leaves_one_range(root: Path) -> None:
    """A bit of a name leaves room for millions of files: a look does not go through them."""
    fill(root)
    far = 1000 * SEGMENT
    last = max((root / "commitlog").iterdir())
    last.rename(last.with_name(f"{far:020d}"))
    looked = tools.repair(root, dry_run=True, **SHAPE)
    missing = [(one.start, one.end) for one in looked.ranges if one.reason == "missing segment"]
    assert missing == [(int(last.name), far)], str(looked)


@pytest.mark.parametrize("numbers", [(1, 8), (1, 7, 8), tuple(range(9))])
def test_what_the_end_lacks_is_not_given_up(numbers: tuple[int, ...], root: Path) -> None:
    """It may be on a disk that is not mounted: the queues, which know of it, must not be cut."""
    messages = fill(root)
    assert max(m.physical_offset for m in messages) // SEGMENT == 8
    log = root / "commitlog"
    kept = {number: (log / f"{number * SEGMENT:020d}").read_bytes() for number in numbers}
    lose(root, *numbers)
    for _ in range(2):
        with pytest.raises(rocketstore.MissingSegmentsError):
            tools.repair(root, fill_missing=True, **SHAPE)
    for number in numbers:
        (log / f"{number * SEGMENT:020d}").write_bytes(kept[number])
    assert served(root) == expected(messages, set())
    is_sound(root)


def test_a_second_name_is_not_lost(root: Path) -> None:
    """What another program took away of a segment that was being written has one."""
    messages = fill(root)
    name = f"{SEGMENT:020d}"
    (root / "commitlog" / name).rename(root / "rocketstore" / "live" / name)
    assert not tools.repair(root, fill_missing=True, **SHAPE).ranges
    assert served(root) == expected(messages, set())


def test_a_name_far_beyond_fills_no_disk(root: Path) -> None:
    fill(root)
    stray = root / "commitlog" / f"{SEGMENT << 40:020d}"
    stray.write_bytes(bytes(SEGMENT))
    before = sorted(os.listdir(root / "commitlog"))
    with pytest.raises(rocketstore.DiskFullError, match="nothing was changed"):
        tools.repair(root, fill_missing=True, **SHAPE)
    assert sorted(os.listdir(root / "commitlog")) == before


def test_a_full_disk_changes_nothing_else(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    messages = fill(root)
    lose(root, 1)

    class Full:
        @staticmethod
        def make(*given: object, **named: object) -> None:
            raise rocketstore.DiskFullError(errno.ENOSPC, "no room")

    monkeypatch.setattr("rocketstore.tools._repair.missing_segments.NewFile", Full)
    with pytest.raises(rocketstore.DiskFullError):
        tools.repair(root, fill_missing=True, **SHAPE)
    monkeypatch.undo()
    assert not (root / "commitlog" / f"{SEGMENT:020d}").exists()
    assert tools.repair(root, fill_missing=True, **SHAPE).ok
    lost = {m.physical_offset for m in messages if m.physical_offset // SEGMENT == 1}
    assert served(root) == expected(messages, lost)


def test_on_the_command_line(invoke: Invoke, root: Path) -> None:
    fill(root)
    lose(root, 2)
    words = ("repair", root, "--index-slots", SHAPE["index_slots"], "--index-entries")
    words = (*words, SHAPE["index_entries"])
    assert invoke(*words).exit_code == exit_codes.DAMAGED
    result = invoke(*words, "--fill-missing")
    assert result.exit_code == exit_codes.OK, result.output
    assert invoke(*words).exit_code == exit_codes.OK
