"""What cannot be delivered is kept, said and tried again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketstore.errors import DiskFullError, MessageRejectedError
from rocketstore.services.delay import delivery
from rocketstore.testing import ManualClock
from tests.services.delay_tools import (
    TOPIC,
    bodies,
    own_part,
)
from tests.support.small_store import open_small
from tests.support.waiting import wait_until


def test_a_message_that_cannot_be_delivered_is_kept(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others of its level go on; it is tried again, also by the next open, and is never dropped."""
    put, refused = delivery.put_message, [b"1"]

    def refuse_some(engine: Any, topic: str, body: Any, *rest: Any, **named: Any) -> Any:
        if bytes(body) in refused:
            raise MessageRejectedError("no such topic today")
        return put(engine, topic, body, *rest, **named)

    monkeypatch.setattr(delivery, "put_message", refuse_some)
    with open_small(tmp_path, clock=clock) as store:
        writer = store.writer("orders")
        for n in range(3):
            writer.put(b"%d" % n, delay_level=1)
        clock.advance(1)
        wait_until(lambda: bodies(store) == [b"0", b"2"])
        ((level, offset, error),) = store.delayed.undelivered
        assert (level, offset, str(error)) == (1, 1, "no such topic today")
        wait_until(lambda: len(store.delayed) == 1)
    assert own_part(tmp_path)["rocketstore"]["undelivered"] == {"1": [1]}
    with open_small(tmp_path, "r") as store:
        assert [(level, at) for level, at, _ in store.delayed.undelivered] == [(1, 1)]
    with open_small(tmp_path, clock=clock) as store:
        wait_until(lambda: store.delayed.undelivered[0][2] is not None)
        refused.clear()
        wait_until(lambda: bodies(store) == [b"0", b"2", b"1"])
        wait_until(lambda: store.delayed.undelivered == [])
    assert own_part(tmp_path)["rocketstore"]["undelivered"] == {}


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "1"},
        {"DELAY": "1", "REAL_TOPIC": "orders"},
        {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "x"},
        {"DELAY": "1", "REAL_TOPIC": TOPIC, "REAL_QID": "0"},
        {"DELAY": "1", "REAL_TOPIC": "no topic", "REAL_QID": "0"},
        {"DELAY": "1", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"},
    ],
)
def test_a_message_that_does_not_say_where_it_goes(
    tmp_path: Path, clock: ManualClock, properties: dict[str, str]
) -> None:
    with open_small(tmp_path, clock=clock) as store:
        store.put_message(TOPIC, b"bad", properties=properties)
        store.writer("orders").put(b"good", delay_level=1)
        clock.advance(2)
        wait_until(lambda: bodies(store) == [b"good"])
        ((level, offset, error),) = store.delayed.undelivered
        assert (level, offset) == (1, 0)
        assert isinstance(error, MessageRejectedError)


def test_a_full_disk_delays_and_loses_nothing(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, room = delivery.put_message, list[int]()

    def refuse_all(*given: Any, **named: Any) -> Any:
        if not room:
            raise DiskFullError(28, "no room")
        return put(*given, **named)

    monkeypatch.setattr(delivery, "put_message", refuse_all)
    with open_small(tmp_path, clock=clock) as store:
        for n in range(3):
            store.writer("orders").put(b"%d" % n, delay_level=1)
        clock.advance(1)
        wait_until(lambda: isinstance(store.delayed.error, DiskFullError))
        assert (len(store.delayed), store.delayed.undelivered) == (3, [])
        room.append(1)
        wait_until(lambda: bodies(store) == [b"0", b"1", b"2"])
        wait_until(lambda: store.delayed.error is None)


def test_an_error_of_the_service_leaves_the_store_at_work(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path, clock=clock) as store:
        with monkeypatch.context() as patched:
            patched.setattr(delivery, "waiting_queues", lambda _: 1 / 0)
            store.writer("orders").put(b"x", delay_level=1)
            wait_until(lambda: isinstance(store.delayed.error, ZeroDivisionError))
            store.writer("orders").put(b"y")
            assert bodies(store) == [b"y"]
        clock.advance(1)
        wait_until(lambda: bodies(store) == [b"y", b"x"])
        wait_until(lambda: store.delayed.error is None)  # at the end of that round
