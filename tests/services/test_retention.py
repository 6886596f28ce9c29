"""Retention of an open store: what goes by itself, what holds it, and what a dry run says."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, Retention
from rocketstore._native.os import syscalls
from rocketstore.engine.open_options import SYSTEM_CLOCK
from rocketstore.log.layout.state_files import unlink_if_there
from rocketstore.log.mapped_files import second_names
from rocketstore.services.retention import keeper
from rocketstore.testing import ManualClock
from tests.support.retention_tools import ALL, NEVER, SOON, comes_true, fill, used
from tests.support.small_store import (
    SEGMENT,
    dispatched,
    engine_of,
    everything,
    no_dispatch,
    open_small,
    open_still,
    segments,
)
from tests.support.waiting import pause

# ---- by itself ----


def test_a_new_segment_wakes_it(tmp_path: Path) -> None:
    """With a timer that would come tomorrow."""
    rule = Retention(max_bytes=4 * SEGMENT, check_every=NEVER)
    with open_small(tmp_path, retention=rule) as store:
        assert store.retention.rule == rule
        fill(store, 300)
        assert comes_true(lambda: len(used(store)) <= 4)
        assert store.retention.last_error is None
        assert repr(store.retention) == f"StoreRetention(rule={rule!r}, events=0)"
        assert repr(store.transactions) == "Transactions(0 open)"
        assert len(everything(store)) <= 4 * SEGMENT // 400
        assert rocketstore.opened(tmp_path).retention.rule == rule


def test_the_timer_alone_does_it(tmp_path: Path) -> None:
    with fill(open_small(tmp_path)) as store:
        assert len(used(store)) > 5
        last_ms = everything(store)[-1].store_timestamp_ms
    age = datetime.timedelta(seconds=1)
    with open_small(tmp_path, retention=Retention(max_age=age, check_every=SOON)) as store:
        assert comes_true(lambda: len(used(store)) == 1)
        first_left_ms = store.get(store.begin_offset).store_timestamp_ms
        assert syscalls.realtime_ms() >= first_left_ms + 1000
        assert first_left_ms <= last_ms
        assert store.begin_offset == store.end_offset // SEGMENT * SEGMENT


def test_it_follows_the_clock_of_the_store(tmp_path: Path) -> None:
    """An hour of that clock, with a timer that would come tomorrow."""
    clock = ManualClock()
    rule = Retention(max_age=datetime.timedelta(hours=1), check_every=NEVER)
    with open_small(tmp_path, clock=clock, retention=rule) as store:
        fill(store)
        middle = store.begin_offset + len(used(store)) * SEGMENT
        clock.advance(datetime.timedelta(minutes=59))
        fill(store)
        assert store.begin_offset == 0
        clock.advance(datetime.timedelta(minutes=2))
        assert comes_true(lambda: store.begin_offset > 0)
        assert middle - 2 * SEGMENT <= store.begin_offset <= middle
        clock.set(0)
        assert store.retention.plan().count == 0


def test_a_clock_that_jumps_ahead_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does the open of a store whose messages are all too old by it."""
    rule = Retention(max_age=datetime.timedelta(hours=1), check_every=NEVER)
    with open_small(tmp_path, retention=rule) as store:
        fill(store)
        years = 50 * 365 * 86_400_000
        monkeypatch.setattr(SYSTEM_CLOCK, "_read_ms", lambda: syscalls.realtime_ms() + years)
        assert store.retention.run().count == 0
    with open_small(tmp_path, retention=rule) as store:
        assert store.retention.run().count == 0
        assert store.retention.run(rule).count > 0  # an order that is given now


def test_an_error_is_kept_and_the_next_round_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A segment that keeps its second name stays; no put fails, no reader sees it."""
    real = unlink_if_there

    def kept(path: str) -> None:
        if "/live/" in path:
            raise PermissionError(13, "kept", path)
        real(path)

    monkeypatch.setattr(keeper, "RETRY_MOST_S", 0.02)
    rule = Retention(max_bytes=2 * SEGMENT, check_every=SOON)
    with open_small(tmp_path, retention=rule) as store:
        with monkeypatch.context() as patch:
            patch.setattr(second_names, "unlink_if_there", kept)
            fill(store)
            assert comes_true(lambda: store.retention.last_error is not None)
            pause(0.2)
            error = store.retention.last_error
            assert isinstance(error, PermissionError)
            assert error.__traceback__ is None
            assert len(everything(store)) == 60
        assert comes_true(lambda: store.retention.last_error is None)
        assert comes_true(lambda: len(used(store)) <= 3)
    said = [record for record in caplog.records if "retention tries again" in record.message]
    assert 1 <= len(said) <= 10  # a new error, not each round


def test_it_ends_with_the_store(tmp_path: Path) -> None:
    import threading

    store = open_small(tmp_path, retention=Retention(max_bytes=SEGMENT, check_every=SOON))
    fill(store)
    kept = store.retention
    assert "rocketstore-retention" in {thread.name for thread in threading.enumerate()}
    store.close()
    assert "rocketstore-retention" not in {thread.name for thread in threading.enumerate()}
    for act in (kept.plan, kept.run):
        with pytest.raises(rocketstore.StoreClosedError):
            act()
    assert kept.last_error is None


# ---- what holds ----


def test_what_is_not_in_its_queue_stays(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        fill(store, 20)
        with no_dispatch(store):
            at = store.dispatched_offset
            writer = store.writer("orders")
            for _ in range(60):
                writer.put(b"x" * 300)
            store.flush()
            plan = store.retention.plan(ALL)
            assert store.retention.run(ALL) == plan
            assert store.begin_offset == plan.new_begin_offset <= at
            assert "not yet on the disk, or not yet in its queue" in str(plan)
        assert len(everything(dispatched(store))) >= 60


def test_a_trim_does_not_believe_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made too boldly removes nothing that is not in its queue all the same."""
    with open_small(tmp_path) as store:
        fill(store, 20)
        with no_dispatch(store):
            at = store.dispatched_offset
            for _ in range(60):
                store.put_message("orders", b"x" * 300)
            store.flush()

            def bold(real: Any, rule: Retention, facts: Any) -> Any:
                return real(rule, dataclasses.replace(facts, limit=store.end_offset))

            for name in ("decide", "outcome"):
                monkeypatch.setattr(keeper, name, partial(bold, getattr(keeper, name)))
            plan = store.retention.run(ALL)
            assert plan.waits
            assert store.begin_offset == plan.new_begin_offset <= at
        assert len(everything(dispatched(store))) >= 60


def test_what_is_not_flushed_stays(tmp_path: Path) -> None:
    with open_still(tmp_path, "os") as store:
        for _ in range(40):
            store.writer("orders").put(b"x" * 600)
        dispatched(store)
        assert store.retention.plan(ALL).count == 0
        store.flush()
        assert store.retention.plan(ALL).count > 0


def test_groups(tmp_path: Path) -> None:
    """The slowest queue of a group counts, and a queue of its topics that it has not begun."""
    with open_small(tmp_path) as store:
        for n in range(60):
            store.put_message("orders", b"%02d" % n * 150, queue_id=n % 2)
        store.put_message("other", b"x")
        dispatched(store)

        def held(*groups: str) -> int:
            rule = Retention(max_bytes=1, keep_unconsumed_by=groups)
            return store.retention.plan(rule).new_begin_offset

        def to(group: str, offsets: dict[int, int]) -> None:
            engine_of(store).offsets.commit("orders", group, offsets, 0, lambda end: None)

        with store.consumer("orders", queue_id=0) as consumer:
            offset = {message.queue_offset: message.physical_offset for message in consumer}
        assert held("billing") == 0
        for at in range(30):
            to("billing", {0: at, 1: 30})
            assert held("billing") == offset[at] // SEGMENT * SEGMENT, at
        to("billing", {0: 20, 1: 30})
        assert held("billing") == offset[20] // SEGMENT * SEGMENT > 0
        assert held("billing", "nobody") == 0
        text = str(store.retention.plan(Retention(max_bytes=1, keep_unconsumed_by=["nobody"])))
        assert "group nobody has stored no offset yet (from 0)" in text
        to("late", {0: 30})
        assert held("late") == 0
        to("late", {1: 30})
        assert held("late") > offset[29] - 2 * SEGMENT
        every = Retention(max_bytes=1, keep_unconsumed_by="all")
        plan = store.retention.plan(every)
        assert plan.new_begin_offset == held("billing")
        why = f"group billing has not consumed orders/0 from queue offset 20 (from {offset[20]})"
        assert why in plan.segments[plan.count].reasons
        assert store.retention.run(every) == plan
        assert store.begin_offset == plan.new_begin_offset
        to("billing", {0: 10})  # set back below what is there
        assert store.retention.plan(every).count == 0


def test_archives(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")
    rule = Retention(max_bytes=1, keep_unshipped=True)
    with fill(open_small(tmp_path / "s")) as store:
        assert "never shipped (from 0)" in str(store.retention.plan(rule))
        report = store.ship((tmp_path / "archive").as_uri())
        fill(store)
        plan = store.retention.plan(rule)
        assert plan.new_begin_offset == report.end_offset
        why = f"not shipped to {(tmp_path / 'archive').as_uri()} (from {report.end_offset})"
        assert why in plan.segments[plan.count].reasons
        assert store.retention.run(rule) == plan
        fill(store)
        # By another process, as a job of the night does it.
        end = rocketstore.ship(tmp_path / "s", (tmp_path / "archive").as_uri()).end_offset
        assert store.retention.run(rule).new_begin_offset == end == store.begin_offset
        note = tmp_path / "s/rocketstore/shipped.json"
        for text in ("{", "[]", '{"archives": {"a": [[5]]}}', '{"archives": {"a": [[0, -1]]}}'):
            note.write_text(text.replace('{"a', '{"version": 1, "a'))
            assert store.retention.plan(rule).count == 0
        document = {"version": 1, "archives": {"a": [[0, 1 << 40]]}}
        note.write_text(json.dumps(document))  # of another log
        assert store.retention.plan(rule).count == 0


def test_services(tmp_path: Path) -> None:
    with fill(open_small(tmp_path)) as store:
        guests: Any = engine_of(store).guests
        guests.hold("timers", lambda: 3 * SEGMENT + 1)
        guests.hold("nothing", lambda: None)
        plan = store.retention.run(ALL)
        assert store.begin_offset == plan.new_begin_offset == 3 * SEGMENT
        assert plan.segments[3].reasons == (f"needed by timers (from {3 * SEGMENT + 1})",)


def test_views_stay_readable(tmp_path: Path) -> None:
    with fill(open_small(tmp_path)) as store:
        kept = everything(store)
        assert store.retention.run(ALL).count > 5
        assert [message.body for message in kept] == [b"%02d" % n * 150 for n in range(60)]


# ---- asked ----


def test_a_dry_run_is_the_run(tmp_path: Path) -> None:
    with fill(open_small(tmp_path), 200) as store:
        for most in (20, 13, 13, 5, 1):
            rule = Retention(max_bytes=most * SEGMENT)
            plan = store.retention.plan(rule)
            with open_small(tmp_path, "r") as reader:
                assert reader.retention.plan(rule) == plan
            names = [path.name for path in segments(tmp_path)]
            assert store.retention.run(rule) == plan
            left = [path.name for path in segments(tmp_path)]
            assert left == names[plan.count :]
            assert store.begin_offset == plan.new_begin_offset
            assert plan.begin_offset + plan.bytes == plan.new_begin_offset


def test_without_a_rule(tmp_path: Path) -> None:
    with fill(open_small(tmp_path)) as store:
        assert store.retention.rule is None
        for act in (store.retention.plan, store.retention.run):
            with pytest.raises(ConfigError, match="the store was opened without retention="):
                act()
            with pytest.raises(ConfigError, match="a rocketstore.Retention"):
                act("7d")  # type: ignore[arg-type]
        assert len(everything(store)) == 60
    with open_small(tmp_path, "r") as reader:
        assert reader.retention.plan(ALL).count > 0
        with pytest.raises(rocketstore.StoreReadOnlyError, match="open it with 'rw' or 'r\\+'"):
            reader.retention.run(ALL)
    with pytest.raises(TypeError):
        rocketstore.StoreRetention(3)  # type: ignore[arg-type]


def test_it_stays_removed_after_an_open(tmp_path: Path) -> None:
    with fill(open_small(tmp_path)) as store:
        begin = store.retention.run(ALL).new_begin_offset
    with open_small(tmp_path) as store:
        assert store.begin_offset == begin > 0
    store = open_small(tmp_path, retention=ALL_OF_SMALL)
    store.destroy()
    assert not tmp_path.exists() or list(tmp_path.iterdir()) == []


ALL_OF_SMALL = Retention(max_bytes=SEGMENT, check_every=SOON)

#: A reader of its own process: reads the topic from begin to end, again and again, until its input ends.
READER = """
import select, sys, rocketstore
with rocketstore.open(sys.argv[1], "r") as store:
    rounds = 0
    print("begun", flush=True)
    while not rounds or not select.select([sys.stdin], [], [], 0)[0]:
        with store.consumer("orders", reset="earliest") as consumer:
            last = -1
            for message in consumer:
                assert message.queue_offset > last, (message.queue_offset, last)
                assert message.body == b"%08d" % message.queue_offset * 37, message.queue_offset
                last = message.queue_offset
        store.retention
        rounds += 1
print(rounds)
"""


def test_readers_in_other_processes_see_no_error(tmp_path: Path) -> None:
    """Held at 20 segments, over some hundred; tests/process/retention_rolls.py does more."""
    rule = Retention(max_bytes=20 * SEGMENT, check_every=NEVER)
    with (
        open_small(tmp_path, durability="os", retention=rule) as store,
        contextlib.ExitStack() as stack,
    ):
        writer = store.writer("orders")
        writer.put(b"%08d" % 0 * 37)
        readers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", READER, str(tmp_path)],
                    stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True,
                )
            )
            for _ in range(2)
        ]  # fmt: skip
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "begun\n"
        n = 1
        while store.end_offset < 200 * SEGMENT:
            writer.put(b"%08d" % n * 37)
            n += 1
            if n % 100 == 0:
                pause(0.01)
        store.flush()
        for reader in readers:
            out, err = reader.communicate("end\n", timeout=60)
            assert reader.returncode == 0, err
            assert int(out) > 0
        assert comes_true(lambda: len(used(store)) <= 20)
        assert store.retention.last_error is None
        assert store.begin_offset > 50 * SEGMENT
