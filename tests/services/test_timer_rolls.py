"""Timers that retention puts again: they hold no log, and each comes once at its time."""

from __future__ import annotations

import datetime
import logging
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketstore import DiskFullError, Retention, Store
from rocketstore.services.delay import timers
from rocketstore.services.delay.rolling import roll
from rocketstore.services.retention.plan import decide
from rocketstore.services.retention.service import keeper_of
from rocketstore.testing import ManualClock
from tests.services.delay_tools import bodies, crash
from tests.services.timer_tools import at, begun, due_s, put_at, saved, settled, timers_of
from tests.support.retention_tools import ALL, NEVER, comes_true, fill
from tests.support.small_store import SEGMENT, engine_of, open_small, parts

DAY_S = 86_400


def size_of(store: Store) -> int:
    return store.end_offset - store.begin_offset


def held(store: Store) -> list[tuple[str, int]]:
    return [(one.cause, one.bytes) for one in store.retention.plan(ALL).held_by]


@pytest.mark.quick
def test_a_timer_that_is_far_ahead_holds_nothing(tmp_path: Path, clock: ManualClock) -> None:
    """It keeps its id, its time and its body, also over many rolls and an open."""
    rule = Retention(max_bytes=2 * SEGMENT, check_every=NEVER)
    with open_small(tmp_path, clock=clock, retention=rule) as store:
        put_at(store, b"late", 30 * DAY_S, properties={"UNIQ_KEY": "late", "own": "x"})
        for _ in range(5):
            fill(store, 60, "other")
            assert comes_true(lambda: size_of(store) <= 4 * SEGMENT)
        (waiting,) = store.delayed
        assert (waiting.unique_id, due_s(store)) == ("late", [30 * DAY_S])
        assert int(waiting.message.properties["TIMER_ROLL_TIMES"]) > 1
        assert store.retention.last_error is None
    with open_small(tmp_path, clock=clock) as store:
        assert len(store.delayed) == 1
        clock.advance(30 * DAY_S - 1)
        settled(store)
        assert bodies(store) == []
        clock.advance(1)
        settled(store)
        (message,) = store.consumer("orders")
        assert (message.body, message.unique_id) == (b"late", "late")
        assert message.properties["own"] == "x"
        assert "TIMER_ROLL_TIMES" not in message.properties


def test_a_store_without_delivery_puts_them_again(tmp_path: Path, clock: ManualClock) -> None:
    with open_small(tmp_path, clock=clock, deliver_delayed=False) as store:
        put_at(store, b"a", 5, properties={"UNIQ_KEY": "a"})
        put_at(store, b"b", 5, properties={"UNIQ_KEY": "b"})
        fill(store, 60, "other")
        plan = store.retention.plan(ALL)
        assert store.retention.run(ALL) == plan
        assert store.begin_offset == plan.new_begin_offset > 4 * SEGMENT
        assert store.delayed.cancel("b")
        clock.advance(10)
    with open_small(tmp_path, clock=clock) as store:
        settled(store)
        assert bodies(store) == [b"a"]


def test_a_file_of_timers_that_names_what_was_put_again(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The next start finds in the topic that another record has its place."""
    path = tmp_path / "store"
    with open_small(path, clock=clock) as store:
        put_at(store, b"a", 5)
        saved(store)
        fill(store, 60, "other")
        store.retention.run(ALL)
        timers_of(store).stored = None  # it is stored no more
        image = crash(path, tmp_path / "image")
    with open_small(image, clock=clock) as store:
        assert len(store.delayed) == 1
        clock.advance(5)
        settled(store)
        assert bodies(store) == [b"a"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_stop_at_each_step(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    """Before and after each record and each trim: nothing is lost, nothing comes twice."""
    path, images = tmp_path / "store", list[Path]()

    def stopping(act: Any) -> Any:
        def stop(*given: Any, **named: Any) -> Any:
            images.append(crash(path, tmp_path / f"copy{len(images)}"))
            found = act(*given, **named)
            images.append(crash(path, tmp_path / f"copy{len(images)}"))
            return found

        return stop

    with open_small(path, clock=clock, durability=durability) as store:
        for n in range(4):
            put_at(store, b"%d" % n, 1 + n)
            fill(store, 12, "other")
        store.delayed.cancel(put_at(store, b"never", 9))
        monkeypatch.setattr(timers, "put_message", stopping(timers.put_message))
        engine = engine_of(store)
        monkeypatch.setattr(type(engine), "trim", stopping(type(engine).trim))
        for _ in range(3):
            fill(store, 40, "other")
            store.retention.run(ALL)
        monkeypatch.undo()
        assert store.begin_offset > 15 * SEGMENT
    assert len(images) > 20
    for image in images:
        with open_small(image, clock=(later := ManualClock(clock.now_ms()))) as store:
            settled(store)
            later.advance(8)
            settled(store)
            assert bodies(store) == [b"%d" % n for n in range(4)], image.name
            assert [waiting.message.body for waiting in store.delayed] in ([], [b"never"])


def test_they_are_rolled_while_they_are_cancelled_moved_and_delivered(tmp_path: Path) -> None:
    """By the clock of the system, with threads that do each of it."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng, wrong = random.Random(seed), list[BaseException]()
    gone, over = set[bytes](), threading.Event()
    with open_small(tmp_path, durability="os") as store:
        now_ms = parts(store).clock.now_ms()
        for n in range(200):
            span_ms = rng.randrange(1500)
            name = {"UNIQ_KEY": f"{n}"}
            store.writer("orders").put(b"%d" % n, deliver_at=now_ms + span_ms, properties=name)

        def cancel(numbers: list[int]) -> None:
            gone.update(b"%d" % n for n in numbers if store.delayed.cancel(f"{n}"))

        def move(numbers: list[int]) -> None:
            for n in numbers:
                store.delayed.reschedule(f"{n}", now_ms + n * 7)

        def remove() -> None:
            while not over.wait(0.001):
                roll(engine_of(store), store.end_offset, 16)

        def act(work: Any, *given: Any) -> threading.Thread:
            def run() -> None:
                try:
                    work(*given)
                except BaseException as error:
                    wrong.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        numbers = rng.sample(range(200), 160)
        threads = [act(cancel, numbers[:80]), act(move, numbers[80:])]
        remover = act(remove)
        for thread in threads:
            thread.join()
        assert comes_true(lambda: len(store.delayed) == 0)
        over.set()
        remover.join()
        store.flush()
        assert not wrong
        assert 0 < len(gone) < 81
        assert sorted([*bodies(store), *gone]) == sorted(b"%d" % n for n in range(200))


def test_a_clock_that_jumps(tmp_path: Path, clock: ManualClock) -> None:
    """What was put again while it was ahead still comes at its time; a span still does not begin
    again."""
    with open_small(tmp_path, clock=clock) as store:
        put_at(store, b"named", 30)
        store.writer("orders").put(b"span", deliver_after=datetime.timedelta(seconds=20))
        begun(store, unique_id="beat")
        for seconds in (15, 0, 5):
            clock.set(at(seconds))
            settled(store)
            fill(store, 40, "other")
            store.retention.run(ALL)
            assert due_s(store) == [20, 30, 60]
        clock.advance(15)
        settled(store)
        assert bodies(store) == [b"span"]
        clock.advance(40)
        settled(store)
        assert bodies(store) == [b"span", b"named", b"beat"]
        assert due_s(store) == [120]


def test_a_store_of_timers_alone_writes_nothing_again(tmp_path: Path, clock: ManualClock) -> None:
    """They are the log: there is nothing to gain."""
    with open_small(tmp_path, clock=clock) as store:
        first = [put_at(store, b"%04d" % n * 50, 60 + n) for n in range(100)]
        store.flush()
        end, want = store.end_offset, store.end_offset // SEGMENT * SEGMENT
        assert store.retention.run(ALL).count == 0
        assert store.end_offset == end
        assert held(store) == [("timers", want)]
        for result in first[:70]:
            store.delayed.cancel(result)
        store.flush()
        assert store.retention.run(ALL).count > want // SEGMENT
        assert [waiting.message.body[:4] for waiting in store.delayed] == [
            b"%04d" % n for n in range(70, 100)
        ]


def test_a_disk_that_is_full_while_they_are_put_again(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that holds one is removed, and the error says so; then it goes on."""
    put, left = timers.put_message, [3]

    def full(*given: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise DiskFullError(28, "no room")
        return put(*given, **named)

    with open_small(tmp_path, clock=clock) as store:
        for n in range(8):
            put_at(store, b"%d" % n, 60 + n)
            fill(store, 12, "other")
        lowest = next(w for w in store.delayed if w.message.body == b"3").message.physical_offset
        monkeypatch.setattr(timers, "put_message", full)
        with pytest.raises(DiskFullError):
            store.retention.run(ALL)
        assert store.begin_offset == 0
        left[0] = 0
        with pytest.raises(DiskFullError):  # what goes without it went first
            store.retention.run(ALL)
        assert store.begin_offset == lowest // SEGMENT * SEGMENT
        monkeypatch.undo()
        store.retention.run(ALL)
        assert store.begin_offset > 8 * SEGMENT
        clock.advance(70)
        settled(store)
        assert bodies(store) == [b"%d" % n for n in range(8)]


def test_one_that_cannot_be_delivered_and_one_that_is_between_two_times(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The former is put again, the latter is not: its copy is there, and the next one is to come."""
    with open_small(tmp_path, clock=clock) as store:
        begun(store, unique_id="beat")
        wrong = {"TIMER_OUT_MS": f"{at(1)}", "REAL_TOPIC": "a b", "REAL_QID": "0"}
        store.put_message("rmq_sys_wheel_timer", b"wrong", properties=wrong)
        clock.advance(1)
        assert comes_true(lambda: [number for _, number, _ in store.delayed.undelivered] == [1])
        fill(store, 40, "other")
        with timers_of(store).lock():
            timers_of(store).table.copied.add(0)
        assert roll(engine_of(store), store.end_offset, 256) == 1
        assert comes_true(lambda: [number for _, number, _ in store.delayed.undelivered] == [2])
        assert held(store) == []  # but for the one that is between, all would go


def test_a_log_that_grows_under_a_round_is_not_held_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule = Retention(max_bytes=2 * SEGMENT, keep_unconsumed_by=["billing"])
    with open_small(tmp_path) as store:
        keeper = keeper_of(engine_of(store))
        fill(store, 180, "other")
        for later in (0, 400, 0):
            facts = keeper._facts(rule, own=False)
            fill(store, later, "other")
            keeper._warn(decide(rule, facts), facts)
    assert sum("cannot remove" in record.getMessage() for record in caplog.records) == 1


def test_what_holds_the_log_is_said_once(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rule = Retention(max_bytes=2 * SEGMENT, check_every=NEVER, keep_unconsumed_by=["billing"])
    with open_small(tmp_path, clock=clock, retention=rule) as store:

        def warned() -> list[str]:
            return [r.getMessage() for r in caplog.records if "cannot remove" in r.getMessage()]

        put_at(store, b"late", 30 * DAY_S)
        for _ in range(3):
            fill(store, 60, "other")
        (group,) = store.retention.plan().held_by  # the timer alone would be put again
        assert (group.cause, group.from_offset) == ("group billing", 0)
        assert group.bytes == store.end_offset // SEGMENT * SEGMENT - SEGMENT
        assert str(group) in str(store.retention.plan())
        assert comes_true(lambda: len(warned()) == 1)
        assert "group billing has stored no offset yet" in warned()[0]
        with store.consumer("other", group="billing") as consumer:
            list(consumer)
            consumer.commit()
        fill(store, 15, "other")  # fewer than hold the log again
        assert comes_true(lambda: store.begin_offset > 0)
        assert store.retention.last_error is None
        assert len(warned()) == 1
