"""Retention by use of the disk, and what it leaves of the log where messages wait for their time."""

from __future__ import annotations

import gc
import os
import sys
import time
from functools import partial
from mmap import PROT_READ, mmap
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Retention, Store
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.services.retention import disk as disk_module
from rocketstore.services.retention import keeper
from rocketstore.testing import ManualClock
from tests.filesystems import disks
from tests.services.delay_tools import bodies, idle
from tests.support.retention_tools import ALL, NEVER, Disk, comes_true, fill, used
from tests.support.small_store import (
    SEGMENT,
    dispatched,
    engine_of,
    everything,
    no_dispatch,
    open_small,
)
from tests.support.waiting import pause, wait_until


def test_watermarks_have_hysteresis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between them it goes on as it began."""
    rule = Retention(disk_watermarks=(0.5, 0.8), check_every=NEVER)
    with open_small(tmp_path, retention=rule) as store:
        disk = Disk(monkeypatch, store, 100)
        fill(store, 200)
        count = len(used(store))
        disk.others = 75 * SEGMENT - count * SEGMENT
        assert store.retention.plan().count == 0
        disk.others += 5 * SEGMENT
        with monkeypatch.context() as patch:
            patch.setattr(keeper, "holds_of", lambda *_: [service_hold(2 * SEGMENT)])
            assert store.retention.run().count == 2  # now it is used to 78 %
        assert store.retention.plan().count > 0
        disk.others -= 28 * SEGMENT
        assert store.retention.run().count == 0
        disk.others += 20 * SEGMENT
        assert store.retention.plan().count == 0


def service_hold(at: int) -> Any:
    from rocketstore.services.retention.holds import Hold

    return Hold("a test", at)


def test_an_emergency_leaves_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk at 99 %: what a group holds goes, as little as is needed, and it stays known."""
    rule = Retention(
        disk_watermarks=(0.5, 0.8),
        keep_unconsumed_by=["billing"],
        emergency_watermark=0.97,
    )
    with open_small(tmp_path) as store:  # nobody else runs the rule
        disk = Disk(monkeypatch, store, 100)
        fill(store, 200)
        disk.others = 96 * SEGMENT - len(used(store)) * SEGMENT
        plan = store.retention.run(rule)
        assert plan.count == 0
        assert "group billing has stored no offset yet (from 0)" in plan.segments[0].reasons
        assert not store.retention.events
        disk.others += 3 * SEGMENT
        plan = store.retention.run(rule)
        assert (plan.count, plan.emergency) == (3, True)
        event, *others = store.retention.events
        assert others == []
        assert (event.begin_offset, event.new_begin_offset) == (0, 3 * SEGMENT)
        assert event.disk_used == 0.99
        assert event.given_up == ("group billing has stored no offset yet (from 0)",)
        assert abs(event.time_ms / 1000 - time.time()) < 60
        assert str(event) in caplog.text
        assert store.retention.run(rule).count == 0
    with open_small(tmp_path, "r") as reader:
        assert reader.retention.events == (event,)
    (tmp_path / "rocketstore/retention.json").write_text('{"version": 1, "emergencies": [{}]}')
    with open_small(tmp_path, "r") as reader:
        assert reader.retention.events == ()


def test_an_emergency_waits_for_what_is_not_in_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No new segment begins on a full disk: retention comes back by itself."""
    rule = Retention(keep_unconsumed_by=["billing"], emergency_watermark=0.97, check_every=NEVER)
    with open_small(tmp_path, retention=rule) as store:
        disk = Disk(monkeypatch, store, 100)
        with no_dispatch(store):
            for _ in range(60):
                store.put_message("orders", b"x" * 300)
            store.flush()
            disk.others = 99 * SEGMENT - len(used(store)) * SEGMENT
            plan = store.retention.run()
            assert (plan.count, plan.waits) == (0, True)
            kept = store.retention._keeper
            assert kept.round(engine_of(store), rule)
            kept._worker.wake()
        dispatched(store)
        assert comes_true(lambda: store.begin_offset >= 2 * SEGMENT)


def test_a_full_disk_keeps_no_event_and_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rocketstore.services.retention import events

    def full(*_: object) -> None:
        raise OSError(28, "full")

    with fill(open_small(tmp_path)) as store:
        disk = Disk(monkeypatch, store, 100)
        disk.others = 99 * SEGMENT - len(used(store)) * SEGMENT
        monkeypatch.setattr(events, "write_own_json", full)
        rule = Retention(keep_unshipped=True, emergency_watermark=0.98)
        assert store.retention.run(rule).count == 2
        assert len(store.retention.events) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process has mapped")
def test_removed_files_that_are_mapped_are_no_reason_to_remove_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their bytes come back when the messages go."""
    # Files of other tests' processes may have got the number of a removed one, and be removed too.
    monkeypatch.setattr(disk_module, "_processes", lambda: [str(os.getpid())])
    with fill(open_small(tmp_path), 200) as store:
        disk = Disk(monkeypatch, store, 100)
        disk.others = 90 * SEGMENT - len(used(store)) * SEGMENT
        rule = Retention(disk_watermarks=(0.85, 0.9))
        kept = everything(store)[:20]
        assert store.retention.run(rule).count == 5
        disk.others += 5 * SEGMENT
        files = engine_of(store).reader.source.segments()
        held, processes = store.retention._keeper._removed.held(files)
        assert held >= SEGMENT
        assert len(processes) == 1
        assert store.retention.plan(rule).count == 5 - held // SEGMENT
        del kept
        gc.collect()
        assert store.retention._keeper._removed.held(files) == (0, ())
        assert store.retention.plan(rule).count == 5


def test_a_file_that_has_the_number_of_a_removed_one_holds_nothing(tmp_path: Path) -> None:
    """File systems give numbers again, and two of them give the same."""
    path = tmp_path / "file"
    path.write_bytes(bytes(SEGMENT))
    with path.open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ):
        number = removed(path)
        assert disk_module._mapped(number) == {}
        path.unlink()
        assert list(disk_module._mapped(number)) == [os.getpid()]


@pytest.mark.root
def test_a_removed_file_of_another_file_system_holds_nothing(tmp_path: Path) -> None:
    """One that is mapped, has no name and has the number of a removed segment."""
    with disks.disk(tmp_path / "a", "tmpfs") as ours, disks.disk(tmp_path / "b", "tmpfs") as other:
        for made in (ours, other):
            (made.path / "file").write_bytes(bytes(SEGMENT))
        number = removed(ours.path / "file")
        assert (other.path / "file").stat().st_ino == next(iter(number))[1]
        with (other.path / "file").open("rb") as file, mmap(file.fileno(), 0, prot=PROT_READ):
            (other.path / "file").unlink()
            (ours.path / "file").unlink()
            assert disk_module._mapped(number) == {}


def removed(path: Path) -> set[tuple[str, int]]:
    """The key of a file that is about to be removed."""
    file = MappedFile.open(path, 0, SEGMENT, "read")
    try:
        return {(one.device, one.inode) for one in disk_module.RemovedFiles.look([file])}
    finally:
        file.close()


def test_the_use_of_a_real_disk(tmp_path: Path) -> None:
    found = disk_module.disk_use(tmp_path)
    assert 0 < found.used < found.total
    with fill(open_small(tmp_path)) as store:
        assert store.retention.plan(Retention(disk_watermarks=(0.99, 1.0))).disk_used is not None


@pytest.mark.root
@pytest.mark.parametrize("emergency", [0.9, None])
def test_a_disk_that_fills_up(tmp_path: Path, emergency: float | None) -> None:
    """Three times its size is put. A group holds all of it: with an emergency rule puts go on, without one
    they are refused, and nothing has gone."""
    rule = Retention(
        disk_watermarks=(0.5, 0.7),
        keep_unconsumed_by=["billing"],
        emergency_watermark=emergency,
        check_every=NEVER,
    )
    with (
        disks.disk(tmp_path, "tmpfs", size=4 << 20) as made,
        rocketstore.open(
            made.path / "s",
            retention=rule,
            commit_log_file_size_bytes=1 << 16,
            consume_queue_file_size_bytes=20 * 500,
            index_enabled=False,
            max_message_size_bytes=4096,
        ) as store,
    ):

        def put(number: int) -> bool:
            try:
                store.put_message("orders", b"%05d" % number * 200)
            except (rocketstore.DiskFullError, rocketstore.BackpressureError):
                return False
            return True

        refused = False
        for number in range(3 * 4096):
            if number % 50 == 0:
                pause(0.002)
            # A put that comes in front of the thread of retention is refused once, and goes then.
            refused = not put(number) and (
                emergency is None or not comes_true(partial(put, number))
            )
            if refused:
                break
        if emergency is None:
            assert refused
            assert store.begin_offset == 0
            assert store.retention.events == ()
            assert "group billing has stored no offset yet" in str(store.retention.plan())
        else:
            assert not refused
            assert store.begin_offset > 8 << 20
            assert store.retention.last_error is None
            assert "group billing" in str(store.retention.events[-1])
            store.put_message("orders", b"last")
            assert everything(store)[-1].body == b"last"


def reasons(store: Store) -> set[str]:
    return {reason for segment in store.retention.plan(ALL).segments for reason in segment.reasons}


@pytest.mark.quick
@pytest.mark.parametrize("deliver", [True, False])
def test_a_message_that_waits_holds_the_log(
    tmp_path: Path, clock: ManualClock, deliver: bool
) -> None:
    """Also one of a later level, which was put before; and where nothing delivers."""
    options: dict[str, Any] = {"clock": clock, "deliver_delayed": deliver}
    with fill(open_small(tmp_path, **options)) as store:
        waits = store.writer("late").put(b"late", delay_level=5)
        fill(store)
        store.writer("soon").put(b"soon", delay_level=1)
        fill(store)
        store.flush()
        assert f"needed by delayed messages (from {waits.physical_offset})" in reasons(store)
        store.retention.run(ALL)
        assert store.begin_offset == waits.physical_offset // SEGMENT * SEGMENT
        assert len(store.delayed) == 2
    with open_small(tmp_path, "r+", clock=clock) as store:  # before the thread has looked
        store.retention.run(ALL)
        assert store.begin_offset == waits.physical_offset // SEGMENT * SEGMENT
        clock.advance(60)
        wait_until(lambda: bodies(store, "late") == [b"late"])
        wait_until(lambda: bodies(store, "soon") == [b"soon"])
        idle(store)
        fill(store)
        store.flush()
        store.retention.run(ALL)
        assert store.begin_offset == store.end_offset // SEGMENT * SEGMENT


def test_what_was_delivered_holds_nothing(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders")
        first = writer.put(b"first", delay_level=1)
        fill(store)
        second = writer.put(b"second", delay_level=2)
        fill(store)
        store.flush()
        for seconds, waits in ((0, first), (1, second)):
            clock.advance(seconds)
            idle(store)
            at = f"needed by delayed messages (from {waits.physical_offset})"
            assert [reason for reason in reasons(store) if "delayed" in reason] == [at]
        clock.advance(4)
        idle(store)
        assert not any("delayed" in reason for reason in reasons(store))


def test_what_was_left_over_holds_the_log(tmp_path: Path, clock: ManualClock) -> None:
    """It is tried again, so it must be there."""
    with open_small(tmp_path, clock=clock) as store:
        place = {"DELAY": "1", "REAL_TOPIC": "a b", "REAL_QID": "0"}  # no topic has such a name
        wrong = store.put_message("SCHEDULE_TOPIC_XXXX", b"x", properties=place)
        fill(store)
        store.writer("right").put(b"right", delay_level=1)
        fill(store)
        store.flush()
        clock.advance(1)
        wait_until(lambda: bodies(store, "right") == [b"right"])
        assert [(level, at) for level, at, _ in store.delayed.undelivered] == [(1, 0)]
        assert f"needed by delayed messages (from {wrong.physical_offset})" in reasons(store)
