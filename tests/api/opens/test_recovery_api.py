"""Opening after a stop that was not clean, and after RocketMQ: what store.recovery says and readers get."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rocketstore import MissingSegmentsError, Store
from rocketstore.log.commitlog.checkpoint import RocketmqCheckpoint, RocketmqTimes
from rocketstore.log.recovery.recovery import RecoveryReport
from tests.support.copies import copy_if_there
from tests.support.made_store import MadeStore, write_at
from tests.support.paths import ROOT
from tests.support.small_store import (
    SEGMENT,
    dispatched,
    everything,
    open_small,
    open_still,
    parts,
    segments,
)

FIRST_MS = 1_700_000_000_000


@pytest.fixture
def made(tmp_path: Path) -> MadeStore:
    """Another program's store: 90 messages in five segments or more, stopped cleanly."""
    made = MadeStore(tmp_path / "made")
    made.fill(90)
    assert len(segments(made.root)) >= 5
    return made


def crash(made: MadeStore, physic: int, logics: int) -> None:
    """RocketMQ's marks after a crash: abort, and a checkpoint with these times."""
    (made.root / "abort").touch()
    checkpoint = RocketmqCheckpoint(made.root / "checkpoint")
    checkpoint.store(RocketmqTimes(physic, logics, 0, 0, 0))
    checkpoint.close()


def first_times(made: MadeStore) -> dict[int, int]:
    """Store time of the first record of each segment: they are 10 ms apart."""
    times: dict[int, int] = {}
    for number, record in enumerate(made.records):
        times.setdefault(record.physical_offset // SEGMENT * SEGMENT, FIRST_MS + 10 * number)
    return times


def offsets(made: MadeStore) -> list[int]:
    return [record.physical_offset for record in made.records]


def served(path: Path, **options: object) -> tuple[RecoveryReport, list[int]]:
    with open_small(path, **options) as store:
        return store.recovery, [m.physical_offset for m in everything(store)]


def test_clean_stop_of_rocketmq(made: MadeStore) -> None:
    """S001-22 S001-27: from the third-last file; the end is the start of the last plus the place in it."""
    report, found = served(made.root)
    starts = sorted(first_times(made))
    assert report.mode == "foreign-clean"
    assert report.start == starts[-3]
    assert report.end == made.end == starts[-1] + made.end % SEGMENT
    assert found == offsets(made)


def test_fewer_than_three_files(tmp_path: Path) -> None:
    """S001-22: then from the first."""
    made = MadeStore(tmp_path / "made")
    made.fill(10)
    assert served(made.root)[0].start == 0


def test_walk_over_records_blanks_and_the_end(made: MadeStore) -> None:
    """S001-26: a record moves on, a blank goes to the next file, anything else stops there."""
    last = made.records[-1]
    write_at(made.root / "commitlog" / segments(made.root)[-1].name, made.end % SEGMENT, b"\1" * 40)
    report, found = served(made.root)
    assert report.end == last.physical_offset + last.size
    assert found == offsets(made)


def test_crash_searches_backwards(made: MadeStore) -> None:
    """S001-30 S001-35: the last file whose first record is not younger than the smaller of log and
    queue time, less three seconds."""
    times = first_times(made)
    starts = sorted(times)
    for wanted in starts[1:3]:
        shutil.copytree(made.root, made.root.with_name(f"at-{wanted}"))
    for wanted in starts[1:3]:
        copy = MadeStore.__new__(MadeStore)
        copy.root = made.root.with_name(f"at-{wanted}")
        crash(copy, times[wanted] + 3000, times[wanted] + 99_999)
        report, found = served(copy.root)
        assert report.mode == "foreign-unclean"
        assert report.start == wanted
        assert found == offsets(made)


def test_no_file_matches(made: MadeStore) -> None:
    """S001-36: from the first."""
    crash(made, FIRST_MS, FIRST_MS)
    report, found = served(made.root)
    assert report.start == 0
    assert found == offsets(made)


@pytest.mark.parametrize("fault", ["magic", "time"])
def test_a_file_that_tells_no_time_is_passed_over(tmp_path: Path, fault: str) -> None:
    """S001-32 S001-33: its first record has another magic, or the store time 0: the search goes on."""
    made = MadeStore(tmp_path / "made", record_crc=False)
    made.fill(90)
    times = first_times(made)
    second, third = sorted(times)[1:3]
    first = next(r for r in made.records if r.physical_offset == third)
    path = made.root / "commitlog" / f"{third:020d}"
    write_at(path, 4 if fault == "magic" else 56, b"\0" * (4 if fault == "magic" else 8))
    crash(made, times[third] + 3000, times[third] + 3000)
    with open_small(made.root, "r") as store:
        assert store.recovery.start == second
        if fault == "magic":
            assert [d.start for d in store.recovery.damage] == [first.physical_offset]
        else:
            assert store.get(first.physical_offset).store_timestamp_ms == 0


def test_queues_are_rebuilt(made: MadeStore) -> None:
    """S001-38: without queues and index, everything is dispatched again."""
    shutil.rmtree(made.root / "consumequeue")
    crash(made, FIRST_MS, FIRST_MS)
    report, found = served(made.root)
    assert report.dispatch_start == 0
    assert found == offsets(made)


@pytest.mark.parametrize("run_bytes", [64, 100, 1000])
def test_a_run_that_ends_in_a_blank_does_not_look_into_it(
    made: MadeStore, run_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ leaves stale bytes behind the header of a blank."""
    monkeypatch.setattr("rocketstore.log.dispatch.dispatcher.RUN_BYTES", run_bytes)
    stale = 0
    for last, first in itertools.pairwise(made.records):
        blank = last.physical_offset + last.size
        if first.physical_offset != blank:
            size = first.physical_offset - blank - 8
            write_at(segments(made.root)[blank // SEGMENT], blank % SEGMENT + 8, b"\x55" * size)
            stale += size
    assert stale > 200
    shutil.rmtree(made.root / "consumequeue")
    assert served(made.root)[1] == offsets(made)


def test_queues_beyond_the_log_are_cut(made: MadeStore) -> None:
    """S001-39 S001-29: segments and units behind the end go, the rest stays."""
    keep = made.records[60]
    path = made.root / "commitlog" / f"{keep.physical_offset // SEGMENT * SEGMENT:020d}"
    end = (keep.physical_offset + keep.size) % SEGMENT
    write_at(path, end, bytes(SEGMENT - end))
    for later in segments(made.root):
        if int(later.name) > keep.physical_offset:
            later.write_bytes(bytes(SEGMENT))  # a file has its name before it has a record
    crash(made, FIRST_MS, FIRST_MS)
    with open_small(made.root) as store:
        assert store.end_offset == keep.physical_offset + keep.size
        assert store.max_queue_offset("orders", 0) == 61
        assert [m.physical_offset for m in everything(store)] == offsets(made)[:61]
        result = store.writer("orders").put(b"next")
        assert (result.physical_offset, result.queue_offset) == (store.recovery.end, 61)
    assert max(int(p.name) for p in segments(made.root)) <= result.end_offset


def test_no_log_at_all(made: MadeStore) -> None:
    """S001-31: RocketMQ destroys the queues in silence; here it is an error (D-25) until forced."""
    for path in segments(made.root):
        path.unlink()
    with pytest.raises(MissingSegmentsError):
        open_small(made.root)
    with open_small(made.root, force=True) as store:
        assert everything(store) == []
        result = store.writer("orders").put(b"new")
        assert result.physical_offset >= made.end  # no offset is used twice
        assert [m.body for m in everything(dispatched(store))] == [b"new"]


def test_an_empty_store_begins_at_0(tmp_path: Path) -> None:
    """S001-31: no files and nothing that speaks of any."""
    with open_small(tmp_path) as store:
        assert (store.recovery.start, store.recovery.end, store.topics()) == (0, 0, [])
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert store.end_offset == 0


WRITER = """
import os, sys
from pathlib import Path
from tests.support.small_store import open_small, open_still
opened = open_still if sys.argv[2] == "os" else open_small
store = opened(Path(sys.argv[1]), durability=sys.argv[2])
writer = store.writer("orders")
for n in range(40):
    r = writer.put(b"%d" % n * 100, keys=f"k{n}")
print(r.end_offset, flush=True)
os._exit(9)
"""


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_death_of_the_process_loses_nothing_promised(tmp_path: Path, durability: str) -> None:
    """S001-28: disk and os outlive the process; the next open serves, indexes and goes on."""
    path = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path / "s"), durability],
        capture_output=True,
        text=True,
        cwd=path,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 9, done.stderr
    with open_small(tmp_path / "s", "r") as store:  # in memory first, nothing is written
        assert store.end_offset == int(done.stdout)
    with open_small(tmp_path / "s") as store:
        assert store.recovery.mode == "unclean"
        assert [m.body for m in everything(store)] == [b"%d" % n * 100 for n in range(40)]
        assert [m.body for m in store.query("orders", "k33")] == [b"33" * 100]
        assert store.writer("orders").put(b"x").queue_offset == 40


def test_a_torn_tail_is_cut_and_kept_aside(tmp_path: Path) -> None:
    with open_still(tmp_path, "os") as store:
        results = [store.writer("orders").put(b"%d" % n * 50) for n in range(5)]
    name = tmp_path / "commitlog" / ("0" * 20)
    (tmp_path / "abort").touch()
    # As if nothing but the first three were known to be durable.
    (tmp_path / "rocketstore" / "checkpoint").unlink()
    write_at(name, results[4].physical_offset + 100, bytes(20))
    with open_small(tmp_path) as store:
        assert store.recovery.end == results[3].end_offset == store.end_offset
        assert store.recovery.cut is not None
        assert store.recovery.quarantine
        assert len(everything(store)) == 4
        assert store.writer("orders").put(b"again").queue_offset == 4


def test_lost_queue_is_rebuilt_behind_a_clean_mark(tmp_path: Path) -> None:
    """D-18: a directory that is gone is noticed although the store was stopped cleanly."""
    with open_small(tmp_path) as store:
        for n in range(30):
            store.writer("orders", queue_id=n % 2).put(b"%d" % n)
    shutil.rmtree(tmp_path / "consumequeue" / "orders" / "1")
    with open_small(tmp_path) as store:
        assert len(everything(store)) == 30


def test_a_clean_open_scans_nothing_again(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for _ in range(40):
            store.writer("orders").put(b"x" * 500)
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert store.recovery.scanned_records == 0
        assert not store.recovery.lost


def test_group_offsets_never_run_ahead(tmp_path: Path) -> None:
    """D-17: messages are lost, offsets are used again: the group must not skip the new ones."""
    with open_small(tmp_path) as store:
        for n in range(5):
            store.writer("orders").put(b"%d" % n)
        with dispatched(store).consumer("orders", group="g") as consumer:
            consumer.poll()
            consumer.commit()
    for path in [*segments(tmp_path), *(tmp_path / "consumequeue").rglob("0" * 20)]:
        path.unlink()
    with open_small(tmp_path, force=True) as store:
        store.writer("orders").put(b"new")
        with dispatched(store).consumer("orders", group="g") as consumer:
            assert [m.body for m in consumer.poll()] == [b"new"]


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_stale_checksums_of_another_writer_are_read_at_once(tmp_path: Path, mode: str) -> None:
    """A RocketMQ that puts our message again keeps its checksum, which then is none of the new record."""
    with open_small(tmp_path, record_crc=True) as store:
        for n in range(9):
            result = store.writer("orders").put(b"%d" % n)
    segment = tmp_path / "commitlog" / f"{0:020d}"
    start, end = result.physical_offset, result.physical_offset + result.size
    again = bytearray(segment.read_bytes()[start:end])
    again[20:36] = (9).to_bytes(8, "big") + end.to_bytes(8, "big")  # queue and physical offset
    write_at(segment, end, bytes(again))
    write_at(tmp_path / "lock", 0, b"lock")
    for _ in range(2):
        with open_small(tmp_path, mode) as store:
            assert [m.queue_offset for m in everything(store)] == list(range(10))


@pytest.mark.parametrize("gone", [slice(None), slice(-1, None), slice(2, 3)])
def test_missing_segments_are_refused_until_they_are_back(made: MadeStore, gone: slice) -> None:
    """A disk that is not mounted: a second try is no way in."""
    away = made.root.parent / "away"
    away.mkdir()
    log = made.root / "commitlog"
    for file in segments(made.root)[gone]:
        file.rename(away / file.name)
    for _ in range(3):
        with pytest.raises(MissingSegmentsError):
            open_small(made.root)
        assert not (made.root / "abort").exists()
    for file in away.iterdir():
        file.rename(log / file.name)
    assert served(made.root)[1] == offsets(made)


def checkpointed(store: Store) -> int:
    """A hundred messages, dispatched and in the checkpoint; where the next one will be."""
    for number in range(100):
        store.put_message("orders", b"%d" % number)
    dispatched(store)
    save(store)
    return store.end_offset


def test_a_new_queue_costs_no_scan_of_the_log(tmp_path: Path) -> None:
    """D-18: what the checkpoint does not count is new, unless records below its dispatch name it."""
    with open_small(tmp_path / "live", durability="os") as store:
        before = checkpointed(store)
        store.put_message("fresh", b"x")
        dispatched(store)
        shutil.copytree(tmp_path / "live", tmp_path / "crashed", copy_function=copy_if_there)
    with open_small(tmp_path / "crashed") as store:
        assert store.recovery.mode == "unclean"
        assert store.recovery.start == before
        assert [m.body for m in everything(store, "fresh")] == [b"x"]
        assert len(everything(store)) == 100


@pytest.mark.parametrize("derived", [False, True])
def test_new_queues_on_both_sides_of_a_checkpoint_cost_no_scan_of_the_log(
    tmp_path: Path, derived: bool
) -> None:
    """D-18: a queue that is on disk when the checkpoint is stored, and its units are not or its records not
    yet; another one comes afterwards."""
    with open_still(tmp_path / "live", "os", consume_queue_flush_interval_ms=86_400_000) as store:
        before = checkpointed(store)
        store.put_message("fresh", b"x")
        dispatched(store)
        if not derived:
            store.wait_flushed(store.end_offset)
        parts(store).checkpointer._note_end()
        parts(store).checkpointer.save(derived=derived)
        store.put_message("fresher", b"y")
        dispatched(store)
        shutil.copytree(tmp_path / "live", tmp_path / "crashed", copy_function=copy_if_there)
    with open_small(tmp_path / "crashed") as store:
        assert store.recovery.dispatch_start == before
        assert [m.body for m in everything(store, "fresh")] == [b"x"]
        assert [m.body for m in everything(store, "fresher")] == [b"y"]
        assert len(everything(store)) == 100


def test_a_queue_that_is_gone_is_filled_from_the_begin(tmp_path: Path) -> None:
    """D-18: though another one is new."""
    with open_small(tmp_path / "live", durability="os") as store:
        for number in range(100):
            store.put_message("orders", b"%d" % number, queue_id=number % 2)
        dispatched(store)
        save(store)
        store.put_message("fresh", b"x")
        dispatched(store)
        shutil.copytree(tmp_path / "live", tmp_path / "crashed", copy_function=copy_if_there)
    shutil.rmtree(tmp_path / "crashed" / "consumequeue" / "orders" / "1")
    with open_small(tmp_path / "crashed") as store:
        assert store.recovery.start == 0
        assert len(everything(store)) == 100


def save(store: Store) -> None:
    """What the checkpointer does now and then."""
    store.wait_flushed(store.end_offset)
    parts(store).checkpointer.save(derived=True)
