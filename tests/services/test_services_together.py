"""Services that meet: what one of them puts, holds or removes is what the others know."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore import Retention, Store
from rocketstore.testing import ManualClock
from tests.services.delay_tools import bodies
from tests.support.small_store import SEGMENT, open_small
from tests.support.waiting import wait_until

DAYS = datetime.timedelta(days=1)
RULE = Retention(max_bytes=4 * SEGMENT, keep_latest_of=["config"])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(10**12)


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    with open_small(tmp_path, clock=clock) as opened:
        yield opened


def trimmed(store: Store) -> None:
    """What is there now lies in segments that are gone."""
    end = store.end_offset
    while store.begin_offset < end:
        for _ in range(20):
            store.writer("fill").put(bytes(1000))
        store.retention.run(RULE)


def test_timers_of_a_transaction_are_put_again_by_retention(
    store: Store, clock: ManualClock
) -> None:
    """And keep their ids: for the next put, for a cancel and for a move of the next transaction."""
    mails = store.writer("mails")
    mails.put(b"a", unique_id="u1", deliver_after=30 * DAYS)
    with store.transaction() as tx:
        tx.put("mails", b"b", unique_id="u2", deliver_after=30 * DAYS)
        tx.put("mails", b"now", unique_id="u3")
    assert [one.id for one in tx.results] == ["u2", "u3"]
    trimmed(store)
    assert len(store.delayed) == 2
    assert all(mails.put(b"no", unique_id=id_).duplicate for id_ in ("u1", "u2"))
    with store.transaction() as tx:
        assert tx.cancel("u1") and tx.reschedule("u2", 60 * DAYS)
    assert [one.unique_id for one in store.delayed] == ["u2"]
    assert not mails.put(b"c", unique_id="u1", deliver_after=90 * DAYS).duplicate
    trimmed(store)
    clock.advance(60 * 86_400 + 1)
    wait_until(lambda: bodies(store, "mails") == [b"b"])
    assert mails.put(b"no", unique_id="u2").duplicate
    assert store.delayed.cancel("u2").name == "DELIVERED"
    assert store.delayed.cancel("u1").name == "CANCELLED"


def test_the_latest_of_a_key_keeps_its_id_beside_timers_and_holds(store: Store) -> None:
    with store.transaction() as tx:
        tx.put("config", b"1", keys="a", unique_id="c1")
        tx.put("config", b"2", keys="b")
        tx.put("mails", b"later", unique_id="t1", deliver_after=DAYS)
    for _ in range(3):
        trimmed(store)
    assert sorted({(m.keys, m.body) for m in store.consumer("config")}) == [
        (("a",), b"1"),
        (("b",), b"2"),
    ]
    assert store.writer("config").put(b"no", unique_id="c1").duplicate
    assert store.delayed.get("t1") is not None
    begin = store.begin_offset
    store.retention.hold("mine", begin)
    for _ in range(60):
        store.writer("fill").put(bytes(1000))
    store.retention.run(RULE)
    assert store.begin_offset == begin
    assert [held.cause for held in store.retention.plan(RULE).held_by] == ["hold 'mine'"]
    store.retention.release("mine")
    store.retention.run(RULE)
    assert store.begin_offset > begin and store.delayed.get("t1") is not None


def test_a_timer_of_30_days_and_two_keys_hold_no_log(tmp_path: Path) -> None:
    """20 MB are put, and 100 segments go."""
    rule = Retention(max_bytes=2 << 20, keep_latest_of=["config"])
    shape = {"commit_log_file_size_bytes": 180_000, "consume_queue_file_size_bytes": 20_000}
    with open_small(tmp_path, durability="os", **shape) as store:
        store.writer("mails").put(b"late", unique_id="t", deliver_after=30 * DAYS)
        for key in "ab":
            store.writer("config").put(key.encode(), keys=key)
        for _ in range(200):
            end = store.writer("fill").put_batch([bytes(1000)] * 100).end_offset
            store.flush()
            store.retention.run(rule)
            assert end - store.begin_offset <= 4 << 20
        assert store.begin_offset > 100 * 180_000
        waiting = store.delayed.get("t")
        assert waiting is not None and waiting.message.body == b"late"
        assert sorted(message.body for message in store.consumer("config")) == [b"a", b"b"]
