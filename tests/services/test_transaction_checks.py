"""Open transactions are asked about, with RocketMQ's times, and given up after so many checks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.services.transactions.open_table import SAID_BY_HALF
from rocketstore.testing import ManualClock
from tests.support.small_store import everything, open_small
from tests.support.waiting import pause, wait_until

DEAD = "TRANS_CHECK_MAX_TIME_TOPIC"
BIG = {"commit_log_file_size_bytes": 1 << 16, "durability": "memory"}


def until(condition: Callable[[], object]) -> None:
    wait_until(lambda: bool(condition()))


def idle(store: rocketstore.Store) -> None:
    """No question is under way, and the round after it has ended."""
    checks: Any = store.transactions._checks
    until(lambda: not checks._questions)
    pause(0.05)


def test_the_answer_settles_what_is_old_enough(tmp_path: Path) -> None:
    clock = ManualClock()
    asked: list[Any] = []

    def on_check(half: rocketstore.Message) -> Any:
        asked.append(bytes(half.body))
        return {b"a": "commit", b"b": "rollback", b"c": None}[bytes(half.body)]

    with open_small(tmp_path, clock=clock, **BIG) as store:
        store.transactions.check_back(on_check)
        for body in (b"a", b"b", b"c"):
            store.transactions.prepare("orders", body, group="g")
        clock.advance(5.999)
        idle(store)
        assert asked == []
        clock.advance(0.001)
        until(lambda: len(store.transactions.open()) == 1)
        idle(store)
        assert sorted(asked) == [b"a", b"b", b"c"]
        clock.advance(29)
        idle(store)
        assert len(asked) == 3
        clock.advance(1)
        until(lambda: len(asked) == 4)
        until(lambda: store.dispatched_offset >= store.visible_offset)
        assert [message.body for message in everything(store)] == [b"a"]
        assert store.transactions.open()[0].checks == 2


def test_after_its_checks_a_message_goes_to_the_dead_topic(tmp_path: Path) -> None:
    clock = ManualClock()
    asked: list[Any] = []
    with open_small(tmp_path, clock=clock, **BIG) as store:
        store.transactions.check_back(asked.append, interval_s=1, max_checks=2)
        prepared = store.transactions.prepare("orders", b"x", group="g")
        clock.advance(6)
        until(lambda: len(asked) == 1)
        idle(store)
        clock.advance(1)
        until(lambda: len(asked) == 2)
        idle(store)
        clock.advance(1)
        until(lambda: not store.transactions.open())
        until(lambda: everything(store, DEAD))
        (dead,) = everything(store, DEAD)
        assert (dead.body, dead.properties["REAL_TOPIC"]) == (b"x", "orders")
        assert len(asked) == 2 and store.queues("orders") == []
        with pytest.raises(rocketstore.TransactionSettledError, match="given up"):
            prepared.commit()


def test_a_callback_that_raises_or_hangs_blocks_nobody_else(tmp_path: Path) -> None:
    clock, hold, hanging = ManualClock(), threading.Event(), threading.Event()

    def on_check(half: rocketstore.Message) -> Any:
        if half.body == b"hangs":
            hanging.set()
            hold.wait()
        if half.body == b"raises":
            raise OSError("no data base")
        return "sure" if half.body == b"odd" else "commit"

    store = open_small(tmp_path, clock=clock, **BIG)
    for body in (b"hangs", b"raises", b"odd", b"paid"):
        store.transactions.prepare("orders", body, group="g")
    store.transactions.check_back(on_check)
    clock.advance(6)
    until(lambda: len(store.transactions.open()) == 3)
    assert hanging.wait(20)
    until(lambda: store.dispatched_offset >= store.visible_offset)
    assert [message.body for message in everything(store)] == [b"paid"]
    until(lambda: store.transactions.check_error is not None)
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < 60
    hold.set()
    with open_small(tmp_path, clock=clock, **BIG) as store:
        assert len(store.transactions.open()) == 3
        assert [message.body for message in everything(store)] == [b"paid"]


def test_what_a_half_message_says_is_seen_before_a_reopen(tmp_path: Path) -> None:
    """One maker of the entry, whether the half message was just put or is read."""
    clock = ManualClock()
    with open_small(tmp_path, clock=clock, **BIG) as store:
        properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
        store.transactions.prepare("orders", b"x", group="g", properties=properties)
        (made,) = store.transactions._settling.table.entries()
    with open_small(tmp_path, clock=clock, **BIG) as store:
        assert len(store.transactions.open()) == 1
        (read,) = store.transactions._settling.table.entries()
        for name in SAID_BY_HALF:
            assert getattr(made, name) == getattr(read, name), name
    assert made.immunity_ms == 60_000


def test_an_immunity_counts_in_the_process_that_put_it(tmp_path: Path) -> None:
    clock = ManualClock()
    asked: list[Any] = []
    with open_small(tmp_path, clock=clock, **BIG) as store:
        properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
        store.transactions.prepare("orders", b"x", group="g", properties=properties)
        store.transactions.check_back(asked.append, immunity_s=0)
        clock.advance(59)
        idle(store)
        assert not asked
        clock.advance(1)
        until(lambda: len(asked) == 1)


def test_a_message_has_an_immunity_of_its_own(tmp_path: Path) -> None:
    clock = ManualClock()
    asked: list[Any] = []
    with open_small(tmp_path, clock=clock, **BIG) as store:
        store.transactions.prepare(
            "orders", b"x", group="g", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"}
        )
    with open_small(tmp_path, clock=clock, **BIG) as store:
        store.transactions.check_back(asked.append)
        clock.advance(59)
        idle(store)
        assert not asked
        clock.advance(1)
        until(lambda: len(asked) == 1)


def test_a_clock_that_is_set_back_stops_no_check(tmp_path: Path) -> None:
    clock = ManualClock()
    asked: list[Any] = []
    with open_small(tmp_path, clock=clock, **BIG) as store:
        store.transactions.prepare("orders", b"x", group="g")
        clock.set(clock.now_ms() - 3_600_000)
        store.transactions.check_back(asked.append)
        until(lambda: len(asked) == 1)
        idle(store)
        clock.advance(30)
        until(lambda: len(asked) == 2)


@pytest.mark.parametrize(
    "wrong",
    [{"on_check": 1}, {"immunity_s": -1}, {"interval_s": "x"}, {"max_checks": 0}],
    ids=str,
)
def test_arguments_without_meaning(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with (
        open_small(tmp_path, **BIG) as store,
        pytest.raises((TypeError, ValueError), match=next(iter(wrong))),
    ):
        store.transactions.check_back(**{"on_check": lambda half: None, **wrong})
