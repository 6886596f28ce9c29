"""Damage in the middle of a log, mended so that nothing behind it is lost to anybody."""

from __future__ import annotations

import hashlib
import importlib
import os
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Message, StoreLockedError, tools
from rocketstore._native.format.codec import encode_record
from rocketstore.cli import exit_codes
from tests.cli.conftest import invoke
from tests.support.small_store import SEGMENT, SMALL, open_small

__all__ = ["invoke"]

SHAPE = {name: SMALL[name] for name in ("index_slots", "index_entries")}


def fill(root: Path, count: int = 120) -> list[Message]:
    with open_small(root, durability="os") as store:
        places = [
            store.writer("orders" if number % 3 else "events", queue_id=number % 2).put(
                b"%d:" % number + bytes(number * 37 % 300), keys=f"k{number}", tags="t"
            )
            for number in range(count)
        ]
    # Copies: messages of a store show what becomes of its files.
    return [Message.from_bytes(read(root, place.physical_offset, place.size)) for place in places]


def write(root: Path, offset: int, data: bytes) -> None:
    path = root / "commitlog" / f"{offset - offset % SEGMENT:020d}"
    with path.open("r+b") as file:
        file.seek(offset % SEGMENT)
        file.write(data)


def read(root: Path, offset: int, size: int) -> bytes:
    path = root / "commitlog" / f"{offset - offset % SEGMENT:020d}"
    return path.read_bytes()[offset % SEGMENT :][:size]


def served(root: Path) -> dict[int, tuple[object, ...]]:
    """What consumers are given: physical offset → the message."""
    found = {}
    with open_small(root, "r") as store:
        for topic in store.topics(system=True):
            for queue_id in store.queues(topic):
                with store.consumer(topic, queue_id=queue_id) as consumer:
                    for m in consumer:
                        found[m.physical_offset] = (m.topic, m.queue_id, m.queue_offset, m.body)
    return found


def looks_plain(message: Message, start: int, end: int) -> bool:
    """Whether damage spares what the body checksum covers and takes the name of the record checksum: then the
    record looks like one of a writer that appends none (docs/reliability.md)."""
    record_end = message.physical_offset + message.size
    topic_at = bytes(message).rindex(message.topic.encode())
    behind_body = message.physical_offset + topic_at - 1
    return behind_body <= start < record_end - 12 and end > record_end - 20


def expected(messages: list[Message], lost: set[int]) -> dict[int, tuple[object, ...]]:
    return {
        m.physical_offset: (m.topic, m.queue_id, m.queue_offset, m.body)
        for m in messages
        if m.physical_offset not in lost
    }


def image(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("commitlog", "consumequeue", "index")
        for path in sorted((root / part).rglob("*"))
        if path.is_file()
    }


def is_sound(root: Path) -> None:
    report = tools.verify(root, **SHAPE)
    assert report.ok, report.faults
    with open_small(root, "r+") as store:
        assert store.recovery.mode == "clean" and not store.recovery.lost


@pytest.fixture
def messages(root: Path) -> list[Message]:
    """Of a new store in `root`."""
    return fill(root)


def test_a_damaged_body(root: Path, messages: list[Message]) -> None:
    """D-26: the range becomes a record that nobody is given, its unit a pre-blank."""
    victim = next(m for m in messages[50:] if len(m.body) > 50)
    before = bytearray(read(root, victim.physical_offset, victim.size))
    before[victim.size - 40] ^= 0xFF
    write(root, victim.physical_offset, bytes(before))
    report = tools.repair(root, **SHAPE)
    [one] = report.ranges
    assert (one.start, one.end) == (victim.physical_offset, victim.physical_offset + victim.size)
    assert (one.how, report.units, report.ok) == ("record", 1, True)
    [kept] = report.quarantine
    assert (Path(kept) / f"{one.start:020d}").read_bytes() == bytes(before)
    mended = Message.from_bytes(read(root, one.start, one.end - one.start))
    assert mended.size == victim.size and not any(mended.body)
    assert mended.sys_flag & 0xC == 0xC
    assert messages[0].store_timestamp_ms <= mended.store_timestamp_ms
    assert mended.store_timestamp_ms <= messages[-1].store_timestamp_ms
    assert served(root) == expected(messages, {victim.physical_offset})
    with open_small(root, "r") as store:
        for m in messages:
            keys = [found.physical_offset for found in store.query(m.topic, m.keys[0])]
            assert keys == ([] if m is victim else [m.physical_offset])
    is_sound(root)
    after = image(root)
    again = tools.repair(root, **SHAPE)
    assert (again.ranges, again.units, again.ok) == ((), 0, True)
    assert image(root) == after


@pytest.mark.parametrize("clean", [True, False])
def test_any_damage(rng: random.Random, clean: bool, root: Path, messages: list[Message]) -> None:
    """Bytes, pages, whole segments and their ends, after a clean stop and after a crash."""
    # Our checkpoint knows the last bytes: with others there the log would count as another program's, in
    # which the record checksum is not required.
    last = messages[-1].physical_offset - SEGMENT
    hit: list[tuple[int, int]] = []
    for _ in range(rng.randrange(1, 6)):
        start = rng.randrange(last)
        size = min(rng.choice([1, 30, 512, SEGMENT]), SEGMENT - start % SEGMENT, last - start)
        if any(looks_plain(m, start, start + size) for m in messages):
            continue
        write(root, start, rng.choice([bytes(size), rng.randbytes(size)]))
        hit.append((start, start + size))
    if not clean:
        (root / "abort").touch()
    lost = {
        m.physical_offset
        for m in messages
        if any(a < m.physical_offset + m.size and m.physical_offset < b for a, b in hit)
    }
    report = tools.repair(root, **SHAPE)
    assert report.ok, str(report)
    found = served(root)
    assert set(expected(messages, lost)) <= set(found)
    for place, message in found.items():
        assert message == expected(messages, set())[place]
    is_sound(root)


def test_a_dry_run_changes_nothing(root: Path, messages: list[Message]) -> None:
    write(root, messages[40].physical_offset + 92, b"\xff\xff\xff")
    write(root, messages[70].physical_offset, bytes(30))
    before = image(root)
    report = tools.repair(root, dry_run=True, **SHAPE)
    assert [one.how for one in report.ranges] == ["record", "record"]
    assert (report.units, report.ok, report.quarantine) == (2, False, ())
    assert image(root) == before


def test_a_repair_that_was_killed_is_run_again(
    monkeypatch: pytest.MonkeyPatch, root: Path, messages: list[Message]
) -> None:
    """Units go first: afterwards nothing would say which they were."""
    victim = messages[60]
    write(root, victim.physical_offset + 92, b"\xff\xff\xff")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("rocketstore.tools.repair"), "_mend", dies)
        with pytest.raises(KeyboardInterrupt):
            tools.repair(root, **SHAPE)
    report = tools.repair(root, **SHAPE)
    assert report.ok and len(report.ranges) == 1
    assert served(root) == expected(messages, {victim.physical_offset})
    is_sound(root)


@pytest.mark.parametrize("where", ["killed", "locked"])
def test_a_repair_that_ends_behind_the_last_range(
    monkeypatch: pytest.MonkeyPatch, where: str, root: Path, messages: list[Message]
) -> None:
    """The index went before, under the lock: what is opened next makes it anew, and nobody else's files go."""
    victim = messages[60]
    write(root, victim.physical_offset + 92, b"\xff\xff\xff")
    module = importlib.import_module("rocketstore.tools.repair")
    names: list[str] = []

    def ends(*_: object, **__: object) -> None:
        names.extend(p.name for p in (root / "index").iterdir())
        raise KeyboardInterrupt if where == "killed" else StoreLockedError(str(root), "another")

    with monkeypatch.context() as patch:
        if where == "killed":
            patch.setattr(module, "_make_index_again", ends)
            with pytest.raises(KeyboardInterrupt):
                tools.repair(root, **SHAPE)
        else:
            real = module.open_store
            calls = iter([real, ends])
            patch.setattr(module, "open_store", lambda *a, **k: next(calls)(*a, **k))
            assert tools.repair(root, **SHAPE).ok
    assert names == []
    assert tools.repair(root, **SHAPE).ranges == ()
    assert served(root) == expected(messages, {victim.physical_offset})
    is_sound(root)


def test_what_is_too_short_for_a_record_is_named(invoke, root: Path) -> None:
    first = encode_record(topic="t", body=b"a", physical_offset=0)
    start = len(first) + 50
    second = encode_record(topic="t", body=b"b", physical_offset=start, queue_offset=1)
    log = first + b"?" * 50 + second
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(log.ljust(SEGMENT, b"\0"))
    report = tools.repair(root, **SHAPE)
    assert [(one.start, one.end, one.done) for one in report.ranges] == [(len(first), start, False)]
    assert "50 bytes are shorter than any record" in str(report.ranges[0])
    assert not report.ok
    result = invoke("repair", root)
    assert result.exit_code == exit_codes.DAMAGED and "1 cannot be" in result.output


def test_a_sound_store_is_left_alone(root: Path) -> None:
    fill(root)
    before = image(root)
    report = tools.repair(root, **SHAPE)
    assert (report.ok, report.ranges, report.quarantine) == (True, (), ())
    assert image(root) == before


def test_the_command(tmp_path: Path, invoke, root: Path, messages: list[Message]) -> None:
    write(root, messages[40].physical_offset + 92, b"\xff\xff\xff")
    result = invoke("repair", root, "--dry-run")
    assert result.exit_code == exit_codes.DAMAGED and "1 would be mended" in result.output
    result = invoke("repair", root, "--json", "--index-slots", 16, "--index-entries", 64)
    assert result.exit_code == exit_codes.OK and '"how": "record"' in result.output
    assert invoke("repair", tmp_path / "nothing").exit_code != exit_codes.OK
    is_sound(root)
    with open_small(root, "r+"):
        assert invoke("repair", root).exit_code == exit_codes.LOCKED


def test_a_segment_that_is_missing_is_not_made_up(root: Path, messages: list[Message]) -> None:
    (root / "commitlog" / f"{SEGMENT:020d}").unlink()
    with pytest.raises(rocketstore.MissingSegmentsError):
        tools.repair(root, **SHAPE)
    damaged = next(m for m in messages if m.physical_offset > 4 * SEGMENT)
    write(root, damaged.physical_offset + 92, b"\xff\xff\xff")
    report = tools.repair(root, force=True, **SHAPE)
    assert [one.how for one in report.ranges] == ["the file is missing: restore it", "record"]
    assert not report.ok


@pytest.mark.parametrize("number", [0, 3])
def test_a_segment_that_was_cut(number: int, root: Path, messages: list[Message]) -> None:
    """A dry run tells what is going to be mended, no other segment among it."""
    cut = next(m for m in messages if m.physical_offset > number * SEGMENT + 1000)
    os.truncate(root / "commitlog" / f"{number * SEGMENT:020d}", cut.physical_offset % SEGMENT + 50)
    end = (number + 1) * SEGMENT
    dry = tools.repair(root, dry_run=True, force=True, **SHAPE)
    report = tools.repair(root, force=True, **SHAPE)
    for told in (dry, report):
        [one] = told.ranges
        assert (one.start, one.end, one.how) == (cut.physical_offset, end, "record")
    assert (report.units, report.ok) == (dry.units, True)
    lost = {m.physical_offset for m in messages if cut.physical_offset <= m.physical_offset < end}
    assert served(root) == expected(messages, lost)
    is_sound(root)


def test_damage_that_touches_a_missing_segment(
    tmp_path: Path, root: Path, messages: list[Message]
) -> None:
    """What is damaged on both sides is mended; queues keep their units of what can be restored."""
    path = root / "commitlog" / f"{3 * SEGMENT:020d}"
    path.rename(tmp_path / "away")
    first = [m for m in messages if m.physical_offset < 3 * SEGMENT][-1]
    write(root, first.physical_offset, b"\xee" * (3 * SEGMENT - first.physical_offset))
    write(root, 4 * SEGMENT, b"\xee" * 600)
    behind = next(m for m in messages if m.physical_offset >= 4 * SEGMENT + 600).physical_offset
    dry = tools.repair(root, dry_run=True, **SHAPE)
    report = tools.repair(root, force=True, **SHAPE)
    for told in (dry, report):
        assert [(one.start, one.end, one.how) for one in told.ranges] == [
            (first.physical_offset, 3 * SEGMENT, "record"),
            (3 * SEGMENT, 4 * SEGMENT, "the file is missing: restore it"),
            (4 * SEGMENT, behind, "record"),
        ]
        assert not told.ok
    assert report.units == dry.units
    (tmp_path / "away").rename(path)
    lost = {
        m.physical_offset
        for m in messages
        if first.physical_offset <= m.physical_offset < behind and m.physical_offset // SEGMENT != 3
    }
    assert report.units == len(lost)
    assert served(root) == expected(messages, lost)
    # The index was made while the segment was away.
    assert [fault.code for fault in tools.verify(root, **SHAPE).faults] == ["keys"]
    tools.rebuild(root, **SHAPE)
    assert tools.verify(root, **SHAPE).ok


def test_a_segment_that_goes_meanwhile_ends_it_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path, messages: list[Message]
) -> None:
    for number in (30, 90):
        write(root, messages[number].physical_offset + 92, b"\xff\xff\xff")
    path = root / "commitlog" / f"{messages[90].physical_offset // SEGMENT * SEGMENT:020d}"
    module = importlib.import_module("rocketstore.tools.repair")
    found = module.damaged_ranges

    def with_a_loss(*given: Any) -> Any:
        ranges = found(*given)
        path.rename(tmp_path / "away")
        return ranges

    monkeypatch.setattr(module, "damaged_ranges", with_a_loss)
    before = image(root)
    with pytest.raises(FileNotFoundError, match="is gone"):
        tools.repair(root, **SHAPE)
    (tmp_path / "away").rename(path)
    assert image(root) == before
    assert not list((root / "rocketstore" / "quarantine").iterdir())


def test_damage_across_files_is_told_once(root: Path, messages: list[Message]) -> None:
    """From inside one file to the end of the next: two ranges, none of them twice."""
    first = next(m for m in messages if m.physical_offset > 3 * SEGMENT + SEGMENT // 2)
    write(root, first.physical_offset, b"\xee" * (4 * SEGMENT - first.physical_offset))
    write(root, 4 * SEGMENT, b"\xee" * SEGMENT)
    report = tools.repair(root, **SHAPE)
    assert [(one.start, one.end) for one in report.ranges] == [
        (first.physical_offset, 4 * SEGMENT),
        (4 * SEGMENT, 5 * SEGMENT),
    ]
    assert report.ok
    is_sound(root)


def test_a_disk_that_does_not_keep_what_is_written_ends_it(
    monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    victim = fill(root)[60]
    write(root, victim.physical_offset + 92, b"\xff\xff\xff")
    module = importlib.import_module("rocketstore.tools.repair")
    monkeypatch.setattr(module, "_replacement", lambda one: [b"\xee" * (one.end - one.start)])
    with pytest.raises(rocketstore.ReadFailedError, match="does not hold what was written"):
        tools.repair(root, **SHAPE)


def test_offsets_that_are_missing_for_another_reason_are_faults(root: Path) -> None:
    """A mended record excuses nothing but offsets whose units say so."""
    victim = fill(root)[60]
    write(root, victim.physical_offset + 92, b"\xff\xff\xff")
    assert tools.repair(root, **SHAPE).ok
    is_sound(root)
    queue = root / "consumequeue" / victim.topic / str(victim.queue_id)
    start = victim.queue_offset * 20 // 200 * 200
    with (queue / f"{start:020d}").open("r+b") as file:
        file.seek(victim.queue_offset * 20 - start)
        assert file.read(20) == bytes.fromhex("00000000000000007fffffff0000000000000000")
        file.seek(-20, 1)
        file.write(victim.physical_offset.to_bytes(8, "big") + victim.size.to_bytes(4, "big"))
    report = tools.verify(root, **SHAPE)
    text = f"{victim.topic}/{victim.queue_id}: queue offset {victim.queue_offset + 1} follows"
    assert any(text in fault.reason for fault in report.faults), report.faults
