"""Topics that services use themselves: a scan leaves their records out, unless they are named or asked
for; what works on the whole log sees them."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

import rocketstore
from rocketstore import MessageRejectedError
from rocketstore.cli.commands.stat import facts
from rocketstore.engine.engine import Engine
from rocketstore.tools import repair
from tests.support.made_store import MadeStore
from tests.support.small_store import open_small

HALVES = "RMQ_SYS_TRANS_HALF_TOPIC"
LATER = datetime.timedelta(hours=1)


def rows(source: object, **wanted: object) -> list[str]:
    found = rocketstore.scan(source, columns=["topic"], **wanted)  # type: ignore[arg-type]
    return [topic for columns in found for topic in columns["topic"].tolist()]


def test_a_scan_has_them_where_they_are_named_or_asked_for(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", durability="os") as store:
        writer = store.writer("orders")
        writer.put(b"plain")
        writer.put(b"level", delay_level=3)
        writer.put(b"timer", deliver_after=LATER)
        store.transactions.prepare("orders", b"half", group="g")
        with store.transaction() as transaction:
            transaction.put("orders", b"copy")
        assert rows(store) == ["orders", "orders"]
        every = [
            *("orders", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", HALVES),
            *("rmq_sys_rocketstore_transactions", "orders"),
        ]
        assert rows(store, system_topics=True) == every
        assert rows(store, topics=[HALVES, "orders"]) == ["orders", HALVES, "orders"]
        assert rows(store, queues={HALVES: [0]}) == [HALVES]
        assert rows(store, queues=0) == ["orders", "orders"]
        assert rows(store, topic_pattern="RMQ.*|ord.*") == ["orders", "orders"]
        only = rows(store, topic_pattern="RMQ.*|ord.*", system_topics=True)
        assert only == ["orders", HALVES, "orders"]
        with pytest.raises(ValueError, match="system_topics = 'yes'"):
            rows(store, system_topics="yes")


def test_lists_leave_them_out_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stat` shows a queue with a fault all the same."""
    with open_small(tmp_path / "s", durability="os") as store:
        store.writer("orders").put(b"later", delay_level=3)
        store.transactions.prepare("orders", b"half", group="g").commit()
        with store.consumer("orders", group="g") as consumer, store.transaction() as transaction:
            transaction.consume(consumer, timeout_s=30)
            transaction.put("orders", b"copy")
    topics = [HALVES, "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "orders"]
    topics += ["rmq_sys_rocketstore_transactions"]
    groups = ["CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_rocketstore_transactions", "g"]
    with open_small(tmp_path / "s", "r") as store:
        assert (store.topics(), store.groups()) == (["orders"], ["g"])
        assert store.topics(system=True) == topics
        assert store.groups(system=True) == groups
        shown = facts(store, tmp_path / "s")
        assert {row["topic"] for row in shown["queues"]} == {"orders"}
        assert {row["group"] for row in shown["groups"]} == {"g"}
        shown = facts(store, tmp_path / "s", system=True)
        assert sorted({row["topic"] for row in shown["queues"]}) == topics
        assert sorted({row["group"] for row in shown["groups"]}) == groups
        lacks = lambda _, topic, __: 0 if topic == HALVES else None  # noqa: E731
        monkeypatch.setattr(Engine, "first_without_unit", lacks)
        shown = facts(store, tmp_path / "s")
        assert {row["topic"] for row in shown["queues"]} == {HALVES, "orders"}


def test_a_bookmark_passes_what_a_scan_leaves_out(tmp_path: Path) -> None:
    with open_small(tmp_path / "s", durability="os") as store:
        store.writer("orders").put(b"one")
        first = rocketstore.scan(store)
        for _ in range(9):
            store.writer("orders").put(b"later", deliver_after=LATER)
        second = rocketstore.scan(store, after=first.bookmark)
        assert list(second) == []
        assert second.bookmark.offset == store.end_offset
        store.writer("orders").put(b"two")
        third = rocketstore.scan(store, after=second.bookmark.to_json(), columns=["body"])
        assert [columns["body"].tolist() for columns in third] == [[b"two"]]


def test_a_repair_sees_the_records_before_damage(tmp_path: Path) -> None:
    """A filler has the store time of a neighbour, also where all records are those of services."""
    made = MadeStore(tmp_path / "s")
    records = [made.put(HALVES, body=b"half %d" % n * 20) for n in range(4)]
    made.dispatch()
    log = tmp_path / "s" / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[records[2].physical_offset + 4 : records[2].physical_offset + 60] = bytes(56)
    log.write_bytes(data)
    repair(tmp_path / "s")
    names = ["topic", "store_timestamp_ms"]
    [found] = rocketstore.scan(tmp_path / "s", columns=names, system_topics=True)
    assert set(found["topic"].tolist()) == {HALVES, "%"}
    assert len(set(found["store_timestamp_ms"].tolist())) == 1


@pytest.mark.parametrize(
    "topic", ["OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer"]
)
def test_a_transaction_puts_nothing_there(tmp_path: Path, topic: str) -> None:
    with open_small(tmp_path / "s") as store, store.transaction() as transaction:
        with pytest.raises(MessageRejectedError, match=topic):
            transaction.put(topic, b"x")
        transaction.rollback()
