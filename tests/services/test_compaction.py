"""The latest message of each key, in a new store; and topics that RocketMQ 5 compacted, made as format.md 12.2 says."""

from __future__ import annotations

import os
import random
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CompactionReport, tools
from rocketstore._native.format.codec import encode_properties, encode_record
from rocketstore.scanning.latest_keys import WAITING_LEAST, LatestKeys
from rocketstore.testing import ManualClock
from rocketstore.values.system_flags import ROLLED_BACK
from tests.services.compacting import NONE, SHAPE, fill_at_random, messages, put, rows
from tests.support.small_store import SEGMENT, dispatched, open_small, segments


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("keyless", ["keep", "drop"])
def test_as_a_dict_keeps_the_latest(tmp_path: Path, seed: int, keyless: Any) -> None:
    """Each message that stays has its queue offset, times, properties and place in the order."""
    source, into = tmp_path / "s", tmp_path / "t"
    fill_at_random(source, seed)
    before = rows(source)
    latest: dict[str, int] = {}
    no_key = set()
    for at, row in enumerate(before):
        if (row[3].get("KEYS") or "").strip():
            latest[row[3]["KEYS"]] = at
        else:
            no_key.add(at)
    alive = {at for at in latest.values() if before[at][2]}
    stay = sorted(alive | (no_key if keyless == "keep" else set()))
    with open_small(source, "r") as store:
        planned = store.compact("users", into=into, grace=NONE, without_key=keyless, dry_run=True)
        assert not into.exists()
        report = store.compact("users", into=into, grace=NONE, without_key=keyless)
    assert rows(into) == [before[at] for at in stay]
    assert counts(planned) == counts(report)
    assert counts(report) == {
        "messages": len(before),
        "keys": len(latest),
        "kept": len(stay),
        "superseded": len(before) - len(no_key) - len(latest),
        "tombstones_kept": 0,
        "tombstones_dropped": len(latest) - len(alive),
        "without_key": len(no_key),
        "without_key_kept": len(no_key) if keyless == "keep" else 0,
        "undelivered": 0,
    }
    found = tools.verify(into, **SHAPE)
    assert not found.faults, found
    # Everything derived can be made again from the log, gaps included.
    tools.rebuild(into, consume_queue_file_size_bytes=200, **SHAPE)
    assert rows(into) == [before[at] for at in stay]
    assert sorted(os.listdir(tmp_path)) == ["s", "t"]


def counts(report: CompactionReport) -> dict[str, int]:
    names = "messages keys kept superseded tombstones_kept tombstones_dropped without_key"
    more = "without_key_kept undelivered"
    return {name: getattr(report, name) for name in f"{names} {more}".split()}


def test_messages_may_be_numbered_from_0(tmp_path: Path) -> None:
    """Without a gap, and with nothing else changed."""
    fill_at_random(tmp_path / "s", 5)
    with open_small(tmp_path / "s", "r") as store:
        store.compact("users", into=tmp_path / "kept")
        report = store.compact("users", into=tmp_path / "new", keep_offsets=False)
    assert report.skipped_offsets == 0
    numbers: dict[int, int] = {}
    for kept, new in zip(rows(tmp_path / "kept"), rows(tmp_path / "new"), strict=True):
        assert new[1] == numbers.setdefault(kept[0], 0)
        numbers[kept[0]] += 1
        assert (kept[0], *kept[2:]) == (new[0], *new[2:])
    assert not tools.verify(tmp_path / "new", **SHAPE).faults


def test_several_topics_have_keys_of_their_own(tmp_path: Path) -> None:
    fill_at_random(tmp_path / "s", 7)
    with open_small(tmp_path / "s", "r") as store:
        both = store.compact(["users", "other"], into=tmp_path / "both", grace=NONE)
        one = store.compact("other", into=tmp_path / "one", grace=NONE)
    assert both.topics == ("other", "users")
    assert rows(tmp_path / "both", "other") == rows(tmp_path / "one", "other")
    assert one.kept == len(rows(tmp_path / "one", "other")) < both.kept


def test_tombstones_stay_for_the_grace(tmp_path: Path) -> None:
    """By the clock of the store. Without `tombstones` an empty body is a body."""
    clock = ManualClock(1_700_000_000_000)
    with open_small(tmp_path / "s", clock=clock) as store:
        put(store, b"1", "a")
        put(store, b"", "a")
        clock.advance(timedelta(hours=25))
        put(store, b"", "b")
        dispatched(store)
        first = store.compact("users", into=tmp_path / "1")
        second = store.compact("users", into=tmp_path / "2", grace=timedelta(hours=26))
        third = store.compact("users", into=tmp_path / "3", grace=NONE, tombstones=False)
    assert (first.tombstones_kept, first.tombstones_dropped, first.superseded) == (1, 1, 1)
    assert [one.keys for one in messages(tmp_path / "1")] == [("b",)]
    assert (second.tombstones_kept, second.tombstones_dropped) == (2, 0)
    assert (third.tombstones_kept, third.tombstones_dropped, third.kept) == (0, 0, 2)


def test_nothing_stays(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put(store, b"", "a")
        dispatched(store)
        report = store.compact("users", into=tmp_path / "t", grace=NONE)
    assert report.kept == 0
    assert messages(tmp_path / "t") == []
    assert not tools.verify(tmp_path / "t", **SHAPE).faults


def test_gaps_are_logged_once_a_queue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill_at_random(tmp_path / "s", 8)
    with open_small(tmp_path / "s", "r") as store:
        queues = len(store.queues("users"))
        store.compact("users", into=tmp_path / "t")
    told = [one for one in caplog.records if "filled with pre-blanks" in one.getMessage()]
    assert len([one for one in told if one.levelname == "WARNING"]) == queues


def test_gaps_that_the_log_could_not_have_lost(tmp_path: Path) -> None:
    """The new log is made so long that an open, and a rebuild, believe them."""
    with open_small(tmp_path / "s", durability="memory") as store:
        put(store, b"first", "a")
        for _ in range(6000):
            put(store, b"again", "b")
        store.flush()
        dispatched(store)
        report = store.compact("users", into=tmp_path / "t")
    assert report.skipped_offsets == 5999
    assert len(segments(tmp_path / "t")) > 1
    kept = [(one.queue_offset, one.body) for one in messages(tmp_path / "t")]
    assert kept == [(0, b"first"), (6000, b"again")]
    assert not tools.verify(tmp_path / "t", **SHAPE).faults
    tools.rebuild(tmp_path / "t", consume_queue_file_size_bytes=200, **SHAPE)
    assert [(one.queue_offset, one.body) for one in messages(tmp_path / "t")] == kept
    with open_small(tmp_path / "t", check_queues=True) as store:
        assert not store.recovery.unplaced_messages
        put(store, b"next", "c")
        dispatched(store)
    assert messages(tmp_path / "t")[-1].queue_offset == 6001


def test_the_log_begins_behind_its_first_segment(tmp_path: Path) -> None:
    """A pre-blank is a unit of place 0, which RocketMQ must not take for one of the log."""
    fill_at_random(tmp_path / "s", 2)
    with open_small(tmp_path / "s", "r") as store:
        store.compact("users", into=tmp_path / "t")
    with open_small(tmp_path / "t", "r") as made:
        assert made.begin_offset == SEGMENT
        last = [one for one in messages(tmp_path / "t") if one.keys][-1]
        assert [one.body for one in made.query("users", last.keys[0])] == [last.body]


def test_what_is_stored_meanwhile_is_left_out(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put(store, b"1", "a")
        dispatched(store)
        end = store.end_offset

        def told(what: str, done: int, total: int) -> None:
            seen.append((what, done, total))
            put(store, b"later", "a")

        seen: list[tuple[str, int, int]] = []
        report = store.compact("users", into=tmp_path / "t", progress=told)
    assert (report.begin, report.end) == (0, end)
    assert [one.body for one in messages(tmp_path / "t")] == [b"1"]
    assert seen[0][0] == "look"
    assert seen[-1] == ("copy", end, end)


def test_records_that_no_consumer_is_given(tmp_path: Path) -> None:
    with open_small(tmp_path / "s") as store:
        put(store, b"1", "a")
        put(store, b"2", "a", sys_flag=ROLLED_BACK)
        dispatched(store)
        report = store.compact("users", into=tmp_path / "t")
    assert (report.messages, report.kept, report.undelivered) == (1, 1, 1)
    assert [one.body for one in messages(tmp_path / "t")] == [b"1"]
    assert "1 record that no consumer is given: left out" in str(report)


def test_many_keys_take_little_memory() -> None:
    """A hash and a mark for each key, however often it comes."""
    keys, rand = LatestKeys(), random.Random(1)
    model: dict[bytes, int] = {}
    for begin in range(0, 300_000, 5000):
        some = [b"t\0%d" % rand.randrange(10_000) for _ in range(5000)]
        keys.add(some, range(begin, begin + 5000))
        model.update(zip(some, range(begin, begin + 5000), strict=True))
        # What waits is no more than the keys that are known, or a fixed number in each part.
        assert sum(keys._counts) <= max(64 * WAITING_LEAST, len(model))
    assert sum(len(one) for one in keys._marks) <= len(model)
    assert keys.take().tolist() == sorted(model.values())


UNIT = struct.Struct(">qiqqqhii")
#: Closes a file that ends early.
CLOSED = UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
LOG_BYTES = 4096


def record(place: int, queue_offset: int, key: str, queue_id: int = 0) -> bytes:
    return encode_record(
        topic="users",
        body=b"%d" % queue_offset,
        properties=encode_properties({"KEYS": key}),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=place,
        store_timestamp_ms=1_700_000_000_000 + queue_offset,
    )


def write_pair(root: Path, start: int, queue_offsets: list[int], queue_id: int = 0) -> Path:
    """A log file and a file of units with the same name; gives the former."""
    log, units = b"", b""
    for at in queue_offsets:
        made = record(start + len(log), at, f"k{at}", queue_id)
        units += UNIT.pack(start + len(log), len(made), 0, 0, at, 1, -1, 0)
        log += made
    found = []
    for kind, data in (("compactionLog", log.ljust(LOG_BYTES, b"\0")), ("compactionCq", units)):
        directory = root / "compaction" / kind / "users" / str(queue_id)
        directory.mkdir(parents=True, exist_ok=True)
        found.append(directory / f"{start:020d}")
        found[-1].write_bytes(data)
    with found[1].open("ab") as file:
        file.write(CLOSED + bytes(460))
    return found[0]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_small(tmp_path / "s"):
        pass
    return tmp_path / "s"


def test_messages_with_gaps_in_several_files(path: Path) -> None:
    write_pair(path, 0, [3, 4, 90])
    write_pair(path, LOG_BYTES, [91, 1000])
    write_pair(path, 0, [7], queue_id=2)
    half = path / "compaction" / "compactionCq" / "users" / "0" / "compacting"
    half.mkdir()
    (half / f"{0:020d}").write_bytes(b"\0" * 46)
    with open_small(path, "r") as store:
        found = [(one.queue_id, one.queue_offset, one.keys) for one in store.compacted("users")]
        only = [(one.queue_offset, one.body) for one in store.compacted("users", queue_id=2)]
    assert found == [(0, at, (f"k{at}",)) for at in (3, 4, 90, 91, 1000)] + [(2, 7, ("k7",))]
    assert only == [(7, b"7")]


def test_what_is_not_there(path: Path) -> None:
    log = write_pair(path, 0, [1])
    with open_small(path, "r") as store:
        with pytest.raises(rocketstore.QueueNotFoundError, match="no such compacted queue"):
            store.compacted("others")
        with pytest.raises(rocketstore.QueueNotFoundError, match="users/5"):
            store.compacted("users", queue_id=5)
        with pytest.raises(rocketstore.InvalidTopicError):
            store.compacted("../users")
        log.unlink()
        with pytest.raises(FileNotFoundError, match="records of a compacted queue"):
            list(store.compacted("users"))


@pytest.mark.parametrize("how", ["body", "unit", "outside"])
def test_damage(path: Path, how: str) -> None:
    log = write_pair(path, 0, [1, 2])
    units = path / "compaction" / "compactionCq" / "users" / "0" / log.name
    if how == "body":
        data = bytearray(log.read_bytes())
        data[88] ^= 1
        log.write_bytes(data)
    else:
        place = 0 if how == "unit" else LOG_BYTES * 2
        data = bytearray(units.read_bytes())
        data[46:54] = place.to_bytes(8, "big")
        units.write_bytes(data)
    with open_small(path, "r") as store, pytest.raises(rocketstore.CorruptRecordError):
        list(store.compacted("users"))
