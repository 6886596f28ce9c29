"""Verify: silent on what RocketMQ wrote, and it finds each kind of fault where it is."""

from __future__ import annotations

import importlib
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketstore.tools import repair, verify
from tests.support.live_writer import LiveWriter, java_writer
from tests.support.made_store import (
    BODY_AT,
    PRE_BLANK,
    UNIT_SIZE,
    MadeStore,
    rocketmq_store,
    write_at,
)
from tests.support.verifying import STORES, check, faults, made_by_us

# What is really wrong in the stores that RocketMQ left broken: file, position, reason.
BROKEN = {
    "damaged-533": [("commitlog/00000000000000000000", 11350, "body crc")],
    "torn-533": [
        ("commitlog/00000000000000032768", 20130, "topic"),  # and what points there
    ],
}


@pytest.fixture
def made(root: Path) -> MadeStore:
    """Without messages."""
    return MadeStore(root)


@pytest.fixture
def live(root: Path) -> Iterator[LiveWriter]:
    """A writer that has just begun."""
    live = LiveWriter(root)
    yield live
    live.close()


@pytest.mark.parametrize("name", STORES)
def test_what_rocketmq_wrote_is_sound_and_what_it_broke_is_named(name: str, tmp_path: Path) -> None:
    root, expected = rocketmq_store(name, tmp_path)
    report = check(root)
    assert faults(report) == BROKEN.get(name, [])
    must = expected["must"]
    assert report.begin_offset == must["first_log_offset"]
    if name not in BROKEN:
        present = [row for row in must["slots"] if not row[0].startswith("%LMQ%")]
        assert report.counts.records == len(present) + len(must["unqueued"])


def test_verify_counts_what_it_walks(tmp_path: Path) -> None:
    root, expected = rocketmq_store("clean-533", tmp_path)
    counts = check(root).counts
    assert (counts.segments, counts.records, counts.units) == (6, 400, 400)
    assert counts.index_entries == sum(len(row[2]) for row in expected["must"]["index"])
    assert counts.record_bytes == sum(row["size"] for row in expected["acked"])
    assert (counts.lost_bytes, counts.undispatched) == (0, 0)


def test_verify_changes_nothing(tmp_path: Path) -> None:
    root, _ = rocketmq_store("torn-533", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    check(root)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_progress_is_told_and_reaches_its_end(tmp_path: Path) -> None:
    root, _ = rocketmq_store("clean-533", tmp_path)
    told: list[tuple[str, int, int]] = []
    verify(root, progress=lambda *step: told.append(step), index_slots=64, index_entries=300)
    for what in ("log", "queues", "index"):
        steps = [(done, total) for name, done, total in told if name == what]
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1] > 0


def test_an_empty_directory_is_an_empty_store(tmp_path: Path) -> None:
    report = verify(tmp_path)
    assert report.ok
    assert (report.begin_offset, report.end_offset, report.writer) == (0, 0, "none")


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """By mistake: it was said to have no faults."""
    (tmp_path / "photos").mkdir()
    with pytest.raises(FileNotFoundError, match="other files and no store") as caught:
        verify(tmp_path)
    assert caught.value.filename == str(tmp_path)
    (tmp_path / "commitlog").mkdir()
    assert verify(tmp_path).ok


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        verify(tmp_path / "missing")


Change = Callable[[MadeStore], None]


def log_bytes(number: int, at: int, data: bytes) -> Change:
    """Overwrites bytes of the record with this number."""
    return lambda made: made.write_log(made.records[number].physical_offset + at, data)


def queue_unit(queue_offset: int, unit: bytes | None = None, **change: int) -> Change:
    """Overwrites a unit of orders/0, or changes fields of the one that stands there."""

    def write(made: MadeStore) -> None:
        record = made.records[queue_offset]
        fields = {"offset": record.physical_offset, "size": record.size, "code": 0}
        if unit is None:
            path = made.root / "consumequeue" / "orders" / "0" / f"{queue_offset // 10 * 200:020d}"
            at = queue_offset % 10 * UNIT_SIZE
            fields["code"] = struct.unpack(">qiq", path.read_bytes()[at : at + UNIT_SIZE])[2]
        packed = struct.pack(">qiq", *(fields[name] + change.get(name, 0) for name in fields))
        made.write_unit("orders", 0, queue_offset, packed if unit is None else unit)

    return write


def remove(name: str) -> Change:
    return lambda made: (made.root / name).unlink()


def foreign_length(made: MadeStore) -> None:
    with (made.root / "commitlog" / f"{8192:020d}").open("ab") as file:
        file.write(b"x")


CHECKSUM_SIZE = 20  # of the property that holds it, at the end of a record
LOG_1 = "commitlog/00000000000000004096"
QUEUE_0 = "consumequeue/orders/0/00000000000000000000"
CHANGES = [
    pytest.param(log_bytes(30, 0, b"\xff"), "commitlog/", "", id="record size"),
    pytest.param(log_bytes(30, 4, b"\x00"), "commitlog/", "magic", id="magic"),
    pytest.param(log_bytes(30, 28, b"\x7f"), "commitlog/", "physical offset", id="place"),
    pytest.param(log_bytes(30, 88, b"\xff"), "commitlog/", "body crc", id="body"),
    pytest.param(log_bytes(30, 56, b"\xff"), "commitlog/", "record crc", id="store time"),
    pytest.param(
        lambda made: made.write_log(made.segment_size - 1, b"x"),
        "commitlog/",
        None,
        id="blank's inside",
    ),
    pytest.param(
        lambda made: made.write_log(made.end + 50, b"x"),
        "commitlog/",
        "zeros, then bytes",
        id="behind the end",
    ),
    pytest.param(
        foreign_length,
        "commitlog/00000000000000008192",
        "RocketMQ refuses to start: 4097 bytes at 8192",
        id="length of a segment",
    ),
    pytest.param(remove(LOG_1), "commitlog/00000000000000008192", "missing", id="missing segment"),
    pytest.param(queue_unit(5, offset=1), QUEUE_0, "points to", id="unit beside a record"),
    pytest.param(queue_unit(5, size=1), QUEUE_0, "bytes, the record", id="unit of another size"),
    pytest.param(queue_unit(5, code=1), QUEUE_0, "tags code", id="unit of another tag"),
    pytest.param(
        queue_unit(5, PRE_BLANK),
        "consumequeue/orders/0",
        "1 record without",
        id="hidden by a pre-blank",
    ),
    pytest.param(
        queue_unit(59, b"\0" * 20),
        "consumequeue/orders/0",
        "1 record without",
        id="last unit missing",
    ),
    pytest.param(
        queue_unit(5, b"\0" * 20),
        "consumequeue/orders/0",
        "55 records without a unit",
        id="queue that ends too early",
    ),
    pytest.param(
        remove("consumequeue/orders/0/00000000000000000400"),
        "consumequeue/orders/0/00000000000000000600",
        "missing before",
        id="missing queue file",
    ),
]


@pytest.mark.parametrize(("change", "file", "reason"), CHANGES)
def test_each_kind_of_fault_is_found_in_its_file(
    change: Change, file: str, reason: str | None, tmp_path: Path
) -> None:
    made = made_by_us(tmp_path / "store")
    made.fill(60)
    assert verify(made.root).ok
    change(made)
    found = faults(verify(made.root))
    if reason is None:
        assert found == []
        return
    assert any(name.startswith(file) and reason in text for name, _, text in found), found


def test_two_units_that_changed_places_are_found(made: MadeStore) -> None:
    records = made.fill(60)
    for number, other in ((3, records[4]), (4, records[3])):
        made.write_unit(
            "orders", 0, number, struct.pack(">qiq", other.physical_offset, other.size, 0)
        )
    positions = [position for name, position, _ in faults(verify(made.root)) if name == QUEUE_0]
    assert positions == [3 * UNIT_SIZE, 4 * UNIT_SIZE]


def test_one_unit_that_points_too_far_is_one_fault(made: MadeStore) -> None:
    record = made.fill(60)[3]
    made.write_unit("orders", 0, 3, struct.pack(">qiq", 1 << 40, record.size, 0))
    assert [position for _, position, _ in faults(verify(made.root))] == [3 * UNIT_SIZE]


def test_a_queue_that_is_missing_whole_is_found(made: MadeStore) -> None:
    made.put("payments")
    text = "1 record without a unit; the log has 0 … 0, the queue ends at 0"
    assert faults(verify(made.root)) == [("consumequeue/payments/0", 0, text)]


def test_records_of_a_store_that_was_halted_may_wait_for_their_units(made: MadeStore) -> None:
    made.fill(10)
    made.put()
    made.put("payments")
    (made.root / "abort").touch()
    report = verify(made.root)
    assert report.ok
    assert report.counts.undispatched == 2


def test_a_gap_in_the_queue_offsets_of_the_log_is_found(made: MadeStore) -> None:
    made.put()
    gap = made.put(queue_offset=5)
    found = faults(verify(made.root))
    assert (
        f"commitlog/{0:020d}",
        gap.physical_offset,
        "orders/0: queue offset 5 follows 0",
    ) in found


def test_every_flipped_byte_of_a_record_is_found(tmp_path: Path, rng: random.Random) -> None:
    """Only the checksum can be lost without a trace: a property of another name is no fault."""
    made = made_by_us(tmp_path / "store")
    made.fill(60)
    for _ in range(100):
        record = rng.choice(made.records)
        at = record.physical_offset + rng.randrange(record.size - CHECKSUM_SIZE)
        path = made.root / "commitlog" / f"{at - at % made.segment_size:020d}"
        position = at % made.segment_size
        before = path.read_bytes()[position]
        write_at(path, position, bytes([before ^ 1 << rng.randrange(8)]))
        report = verify(made.root)
        where = [(fault.file, fault.position) for fault in report.faults]
        assert (str(path), record.physical_offset % made.segment_size) in where, (at, before)
        write_at(path, position, bytes([before]))
    assert verify(made.root).ok


def test_a_wrong_checksum_where_another_program_wrote_is_a_fault(made: MadeStore) -> None:
    """A RocketMQ at defaults can put our message again and keep its checksum
    (docs/durability.md#recovery), but nothing tells such a record from one that was changed. Who
    knows that there are some lets them pass."""
    made.fill(60)
    log_bytes(30, 63, b"\xff")(made)
    report = verify(made.root)
    [fault] = report.faults
    assert (fault.kind, fault.code) == ("log", "record-crc")
    assert fault.position == made.records[30].physical_offset % made.segment_size
    assert (report.counts.stale_checksums, report.counts.records) == (1, 60)
    assert report.lost_messages == report.hidden_messages == ()
    report = verify(made.root, allow_stale_crc=True)
    assert report.ok
    assert (report.counts.stale_checksums, report.counts.records) == (1, 60)


def test_records_behind_damage_are_still_walked(made: MadeStore) -> None:
    records = made.fill(60)
    made.write_log(records[10].physical_offset, b"\xff" * records[10].size)
    counts = verify(made.root).counts
    assert counts.records == 59
    assert counts.lost_bytes == records[10].size


def test_many_faults_are_counted_but_not_all_named(tmp_path: Path) -> None:
    made = MadeStore(tmp_path / "store", segment_size=1 << 20, queue_file_size=2000 * UNIT_SIZE)
    made.fill(1500)
    for number in range(1500):
        made.write_unit("orders", 0, number, struct.pack(">qiq", 2 * number + 1, 100, 0))
    report = verify(made.root)
    assert report.fault_count == 1500
    assert len(report.faults) == 1000
    assert not report.ok
    assert "1500 faults" in str(report)


def test_files_made_ahead_are_no_fault(made: MadeStore) -> None:
    made.fill(10)
    (made.root / "commitlog" / f"{4096:020d}").write_bytes(bytes(4096))
    report = verify(made.root)
    assert report.ok
    assert report.end_offset == made.end


def test_beside_a_live_writer_only_what_it_has_published_is_looked_at(live: LiveWriter) -> None:
    published = live.fill(30)[-1]
    live.made.fill(40)
    live.made.write_log(live.made.end, b"half a record")
    live.made.write_unit("orders", 0, 70, struct.pack(">qiq", live.made.end, 100, 0))
    report = verify(live.layout.root)
    assert faults(report) == []
    assert report.writer == "live"
    assert report.counts.records == report.counts.units == 30
    assert report.end_offset == published.physical_offset + published.size


def test_a_queue_file_that_its_owner_removes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("rocketstore.tools._verify.queues")
    live = LiveWriter(tmp_path / "store")
    live.fill(30)
    list_files = module.list_files

    def listed(directory: Path) -> list[tuple[int, int]]:
        files: list[tuple[int, int]] = list_files(directory)
        assert len(files) == 3
        (directory / f"{files[0][0]:020d}").unlink()
        return files

    monkeypatch.setattr(module, "list_files", listed)
    report = verify(live.layout.root)
    assert report.counts.units == 20
    assert all("in front" not in fault.reason for fault in report.faults)
    live.close()


def test_beside_rocketmq_the_record_that_is_being_written_is_no_fault(live: LiveWriter) -> None:
    live.made.fill(30)
    live.die()
    live.made.write_log(live.made.end, b"half a record")
    with java_writer(live.layout):
        report = verify(live.layout.root)
    assert (report.writer, faults(report), report.counts.records) == ("java", [], 30)


def test_units_in_files_behind_the_end_of_a_queue_are_found(made: MadeStore) -> None:
    record = made.fill(5)[-1]
    directory = made.root / "consumequeue" / "orders" / "0"
    size = next(directory.iterdir()).stat().st_size
    path = directory / f"{size:020d}"
    path.write_bytes(bytes(size))
    assert verify(made.root).ok
    unit = struct.pack(">qiq", record.physical_offset, record.size, 0)
    for number in (0, 3, size // UNIT_SIZE - 1):
        path.write_bytes(bytes(number * UNIT_SIZE) + unit + bytes(size - (number + 1) * UNIT_SIZE))
        found = [(fault.position, fault.reason) for fault in verify(made.root).faults]
        assert found == [(number * UNIT_SIZE, "units after the end of the queue")]


def test_a_first_queue_file_that_was_cut_hides_no_other(tmp_path: Path) -> None:
    made = made_by_us(tmp_path / "store")
    made.fill(60)
    os.truncate(made.root / QUEUE_0, 5 * UNIT_SIZE)
    found = faults(verify(made.root))
    assert (QUEUE_0, 0, "100 bytes, the others of the queue have 200") in found
    assert {name for name, _, _ in found} == {QUEUE_0, "consumequeue/orders/0"}


@pytest.mark.parametrize(
    ("directory", "size"), [("commitlog", 4096), ("consumequeue/orders/0", 200)]
)
def test_a_file_that_would_end_behind_every_offset(
    directory: str, size: int, tmp_path: Path
) -> None:
    """It is a fault, and stops neither verify nor repair from what is really there."""
    made = made_by_us(tmp_path / "store")
    made.fill(60)
    name = f"{directory}/{(1 << 63) - 1 - ((1 << 63) - 1) % size:020d}"
    (made.root / name).write_bytes(bytes(size))
    [fault] = faults(verify(made.root))
    assert fault[0] == name and "can be no" in fault[2]
    made.write_log(made.records[30].physical_offset + BODY_AT, b"\xff")
    report = repair(made.root, index_slots=64, index_entries=300)
    assert report.ok and report.units == 1
