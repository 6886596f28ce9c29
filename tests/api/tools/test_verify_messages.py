"""Verify: which messages are lost and which are hidden, by topic, queue and offset."""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path

import pytest

import rocketstore
from rocketstore.log.commitlog.checkpoint import RocketmqCheckpoint, RocketmqTimes
from rocketstore.tools import verify
from rocketstore.tools.report import QueueMessages, VerifyReport
from tests.support.live_writer import LiveWriter, java_writer
from tests.support.made_store import BODY_AT, UNIT_SIZE, MadeStore
from tests.support.small_store import open_small, open_still

BASE_MS = 1_700_000_000_000


def named(found: tuple[QueueMessages, ...]) -> set[tuple[str, int, int, int, int]]:
    return {(one.topic, one.queue_id, one.first, one.last, one.count) for one in found}


def times(made: MadeStore, *numbers: int) -> list[int]:
    return [BASE_MS + 10 * number for number in numbers]


def check(made: MadeStore) -> VerifyReport:
    return verify(made.root, index_slots=64, index_entries=300)


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """Two topics with 30 messages each, which lie between each other, in several segments."""
    made = MadeStore(tmp_path / "store")
    for _ in range(30):
        made.fill(1)
        made.fill(1, "events", 2)
    assert check(made).ok
    return made


def test_a_hole_in_the_middle_is_one_fault(made: MadeStore) -> None:
    """Not one for each unit and one for each gap in the queue offsets."""
    for record in made.records[10:15]:
        made.write_log(record.physical_offset, b"\xff" * record.size)
    report = check(made)
    assert [(fault.kind, fault.position) for fault in report.faults] == [
        ("log", made.records[10].physical_offset % made.segment_size)
    ]
    assert named(report.lost_messages) == {("orders", 0, 5, 7, 3), ("events", 2, 5, 6, 2)}
    between = times(made, 9, 15)
    assert [[one.stored_from_ms, one.stored_to_ms] for one in report.lost_messages] == [between] * 2
    assert report.hidden_messages == ()
    assert "LOST: the log lacks 5 messages\n  events/2: 5 … 6 (2 messages), stored 20" in str(
        report
    )


def test_a_body_that_is_damaged_is_a_lost_message(made: MadeStore) -> None:
    made.write_log(made.records[20].physical_offset + BODY_AT, b"\xff")
    report = check(made)
    [lost] = report.lost_messages
    assert named(report.lost_messages) == {("orders", 0, 10, 10, 1)}
    assert [lost.stored_from_ms, lost.stored_to_ms] == times(made, 20, 20)
    assert report.fault_count == 1


def test_segments_that_are_gone_are_one_fault(made: MadeStore) -> None:
    (made.root / "commitlog" / f"{4096:020d}").unlink()
    gone = [one for one in made.records if 4096 <= one.physical_offset < 8192]
    report = check(made)
    assert [fault.kind for fault in report.faults] == ["lost"]
    assert sum(one.count for one in report.lost_messages) == len(gone)
    for one in report.lost_messages:
        offsets = [record.queue_offset for record in gone if record.topic == one.topic]
        assert (one.first, one.last) == (min(offsets), max(offsets))


def test_a_wild_unit_is_of_no_lost_message(made: MadeStore) -> None:
    """The log has the record: it is hidden, and a rebuild brings it back."""
    for offset, size in ((1 << 40, 100), (1 << 62, 1 << 30), (made.end + 5, 90)):
        made.write_unit("orders", 0, 7, struct.pack(">qiq", offset, size, 0))
        report = check(made)
        assert report.lost_messages == ()
        assert named(report.hidden_messages) == {("orders", 0, 7, 7, 1)}
        assert [fault.kind for fault in report.faults] == ["derived"]


def test_hidden_and_lost_messages_of_one_queue_are_told_apart(made: MadeStore) -> None:
    """As many units are wrong as records lack one: the sums alone would be right."""
    for record in made.records[10:14]:
        made.write_log(record.physical_offset, b"\xff" * record.size)
    for number in (20, 21):
        made.write_unit("orders", 0, number, b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 8)
    report = check(made)
    assert named(report.lost_messages) == {("orders", 0, 5, 6, 2), ("events", 2, 5, 6, 2)}
    assert named(report.hidden_messages) == {("orders", 0, 20, 21, 2)}
    assert report.kinds == {"log": 1, "derived": 1}


def test_only_what_the_next_open_dispatches_may_wait(made: MadeStore) -> None:
    """RocketMQ's checkpoint says from which segment on an open after a crash dispatches."""
    shutil.rmtree(made.root / "consumequeue" / "events")
    last = made.records[-1]
    start = last.physical_offset - last.physical_offset % made.segment_size
    checkpoint = RocketmqCheckpoint(made.root / "checkpoint")
    stored = BASE_MS + 10 * len(made.records) + 3000  # what it says less three seconds counts
    checkpoint.store(RocketmqTimes(stored, stored, stored, 0, 0))
    checkpoint.close()
    assert named(check(made).hidden_messages) == {("events", 2, 0, 29, 30)}  # a clean stop
    (made.root / "abort").touch()
    waiting = [
        one for one in made.records if one.topic == "events" and one.physical_offset >= start
    ]
    assert 0 < len(waiting) < 30
    report = check(made)
    assert report.counts.undispatched == len(waiting)
    count = 30 - len(waiting)
    assert named(report.hidden_messages) == {("events", 2, 0, count - 1, count)}
    assert [(fault.kind, fault.code) for fault in report.faults] == [("derived", "hidden")]
    with rocketstore.open(made.root, "r+", index_slots=64, index_entries=300) as store:
        assert store.max_queue_offset("events", 2) == 30
    report = check(made)
    assert (report.fault_count, report.counts.undispatched) == (0, 0)


def test_a_queue_that_a_crash_left_behind_waits(tmp_path: Path, root: Path) -> None:
    """No checkpoint says that it had its units."""
    with open_still(tmp_path / "live", "os") as store:
        for number in range(40):
            store.put_message("orders", b"%d" % number)
        store.flush()
        shutil.copytree(tmp_path / "live", root)
    shutil.rmtree(root / "consumequeue" / "orders", ignore_errors=True)
    report = verify(root)
    assert report.ok
    assert report.counts.undispatched == 40
    assert "40 records are in no queue yet: the next open makes the units" in str(report)
    with open_small(root, "r+") as store:
        assert not store.recovery.refilled_queues
    report = verify(root)
    assert report.ok and report.counts.undispatched == 0 and report.counts.units == 40


def test_units_that_were_there_are_missed_though_the_next_open_makes_them(root: Path) -> None:
    """The open says that they were missing, and so does `verify`."""
    with open_small(root) as store:
        for number in range(40):
            store.put_message("orders", b"%d" % number)
    shutil.rmtree(root / "consumequeue" / "orders")
    assert named(verify(root).hidden_messages) == {("orders", 0, 0, 39, 40)}
    (root / "abort").touch()
    report = verify(root)
    assert named(report.hidden_messages) == {("orders", 0, 0, 39, 40)}
    assert report.counts.undispatched == 0
    with open_small(root, "r+") as store:
        assert [one.count for one in store.recovery.refilled_queues] == [40]
    assert verify(root).ok


def test_units_that_a_crash_zeroed_in_front_are_hidden(root: Path) -> None:
    with open_small(root) as store:
        for number in range(40):
            store.put_message("orders", b"%d" % number)
    (root / "abort").touch()
    file = root / "consumequeue" / "orders" / "0" / f"{0:020d}"
    file.write_bytes(bytes(5 * UNIT_SIZE) + file.read_bytes()[5 * UNIT_SIZE :])
    report = verify(root)
    assert named(report.hidden_messages) == {("orders", 0, 0, 4, 5)}
    with open_small(root, "r") as reader:
        (made_again,) = reader.recovery.refilled_queues
        assert (made_again.first, made_again.last, made_again.count) == (0, 4, 5)


def test_zeros_among_units_of_expired_records_hide_nothing(root: Path) -> None:
    """Readers pass over them in each file of a queue but the last."""
    with open_small(root, durability="os") as store:
        writer = store.writer("orders")
        for number in range(400):
            writer.put(b"%d" % number * 20)
        store.flush()
        store.trim(before_offset=store.end_offset // 2)
    with open_small(root, "r") as reader:
        kept = [message.queue_offset for message in reader.consumer("orders")]
    first = min((root / "consumequeue" / "orders" / "0").iterdir())
    begin = int(first.name) // UNIT_SIZE
    assert begin < kept[0] < begin + 10, "units of both kinds lie in the first file"
    content = bytearray(first.read_bytes())
    for expired in (kept[0] - 1, begin):
        at = (expired - begin) * UNIT_SIZE
        content[at : at + UNIT_SIZE] = bytes(UNIT_SIZE)
        first.write_bytes(content)
        assert verify(root).ok
        with open_small(root, "r") as reader:
            assert [message.queue_offset for message in reader.consumer("orders")] == kept
            assert reader.recovery.refilled_queues == ()
    at = (kept[2] - begin) * UNIT_SIZE
    content[at : at + UNIT_SIZE] = bytes(UNIT_SIZE)
    first.write_bytes(content)
    assert not verify(root).ok


def test_beside_java_only_the_newest_records_may_wait(tmp_path: Path) -> None:
    live = LiveWriter(tmp_path / "store")
    live.made.fill(30)
    live.made.put("payments")
    live.die()
    stored = RocketmqCheckpoint(live.layout.checkpoint)
    with java_writer(live.layout):
        stored.store(RocketmqTimes(BASE_MS, BASE_MS + 2_000, BASE_MS, 0, 0))
        report = verify(live.layout.root)
        assert (report.ok, report.counts.undispatched) == (True, 1)
        stored.store(RocketmqTimes(BASE_MS, BASE_MS + 60_000, BASE_MS, 0, 0))
        report = verify(live.layout.root)
        assert named(report.hidden_messages) == {("payments", 0, 0, 0, 1)}
    stored.close()
    live.close()


def test_random_pieces_of_queues_hide_what_verify_names(tmp_path: Path, rng: random.Random) -> None:
    """Whatever is missing from the queues of a store that was stopped cleanly is named, message by
    message: a consumer gets all others."""
    made = MadeStore(tmp_path / "store")
    for _ in range(40):
        made.fill(1)
        made.fill(1, "events", 2)
    for number in range(12):
        root = tmp_path / str(number)
        shutil.copytree(made.root, root)
        files = sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())
        for file in rng.sample(files, rng.randint(1, 3)):
            how = rng.choice(["remove", "zero", "cut"])
            if how == "remove":
                file.unlink()
            elif how == "cut":
                os.truncate(file, rng.randrange(file.stat().st_size))
            else:
                first = rng.randrange(10)
                count = rng.randint(1, 10 - first)
                data = bytearray(file.read_bytes())
                data[first * UNIT_SIZE : (first + count) * UNIT_SIZE] = bytes(count * UNIT_SIZE)
                file.write_bytes(data)
        report = verify(root)
        there = {
            (path.parent.parent.name, path.stem, at // UNIT_SIZE)
            for path in (root / "consumequeue").rglob("*")
            if path.is_file() and path.stat().st_size == made.queue_file_size
            for at in range(0, made.queue_file_size, UNIT_SIZE)
            if path.read_bytes()[at : at + UNIT_SIZE] != bytes(UNIT_SIZE)
        }
        hidden = sum(one.count for one in report.hidden_messages)
        assert report.ok is (hidden == 0)
        told = [one.reason.split()[0] for one in report.faults if one.code == "hidden"]
        assert hidden == sum(map(int, told))
        assert hidden >= 80 - len(there), report


def test_further_queues_of_records_whose_own_queue_is_whole(root: Path) -> None:
    with open_small(root, multi_dispatch_enabled=True, light_queue_enabled=True) as store:
        for _ in range(3):
            store.put_message("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
    shutil.rmtree(root / "consumequeue" / "%LMQ%a")
    assert named(verify(root).hidden_messages) == {("%LMQ%a", 0, 0, 2, 3)}
