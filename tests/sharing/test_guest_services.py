"""Transactions, half messages, delays and retention of a guest: its host does them, once."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

import rocketstore
from rocketstore import CancelResult, OffsetGapError, Retention, Store
from rocketstore.errors import (
    ConfigError,
    DurabilityTimeoutError,
    MessageNotFoundError,
    MessageRejectedError,
    QueueOffsetMismatchError,
    StoreClosedError,
    TransactionSettledError,
    UnknownTransactionError,
)
from tests.sharing.guest_tools import guest_of, shared
from tests.support.small_store import engine_of

HOUR = datetime.timedelta(hours=1)
SMALL = {"commit_log_file_size_bytes": 4096, "max_message_size_bytes": 1024}


def bodies(store: Store, topic: str = "orders") -> list[bytes]:
    return [bytes(message.body) for message in store.consumer(topic)]


# ---- transactions of several messages ----


def test_a_transaction_is_one_call(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, link):
        host.writer("orders").put_batch([b"a", b"b"])
        consumer = guest.consumer("orders", group="g")
        link.calls.clear()
        with guest.transaction() as tx:
            for order in tx.consume(consumer):
                tx.put("invoices", bytes(order.body), queue_id=1, tags="t", keys="k")
            tx.put("invoices", b"later", deliver_after=HOUR)
            tx.put("others", b"once", unique_id="U")
        assert link.calls == ["transaction"]
        assert tx.outcome == "commit"
        assert guest.committed("orders", "g") == {0: 2}
        assert bodies(guest, "invoices") == bodies(host, "invoices") == [b"a", b"b"]
        a, b, later, once = tx.results
        assert [(one.queue_id, one.queue_offset) for one in (a, b)] == [(1, 0), (1, 1)]
        assert a.durability == "disk"
        assert (host.get(a.physical_offset).tags, once.id) == ("t", "U")
        assert later.due_time is not None
        assert guest.delayed.get(str(later.id)) is not None
        with guest.transaction() as tx:
            tx.put("others", b"twice", unique_id="U")
        assert tx.results[0].duplicate
        assert tx.results[0].physical_offset == once.physical_offset
        assert consumer.commit() == {0: 2}, "the consumer knows what the transaction has stored"


def test_a_transaction_that_is_rolled_back_leaves_no_trace(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, link):
        end = host.writer("orders").put(b"a").end_offset
        consumer = guest.consumer("orders", group="g")
        tx = guest.transaction()
        tx.consume(consumer)
        tx.put("invoices", b"x")
        tx.rollback()
        assert "transaction" not in link.calls
        assert host.end_offset == end
        assert [bytes(one.body) for one in consumer.poll()] == [b"a"]
        with guest.transaction():
            pass
        assert host.end_offset == end


def test_a_condition_of_a_transaction_holds_for_all_of_it(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        tx = guest.transaction()
        tx.put("orders", b"a")
        tx.put("orders", b"b", expected_queue_offset=1)
        host.writer("orders").put(b"first")
        with pytest.raises(QueueOffsetMismatchError):
            tx.commit()
        assert tx.outcome is None
        assert bodies(host) == [b"first"]
        tx.rollback()


def test_a_transaction_steps_over_nothing(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        host.writer("orders").put_batch([b"a", b"b", b"c"])
        consumer = guest.consumer("orders", group="g")
        first = guest.transaction()
        first.consume(consumer, 1)
        second = guest.transaction()
        with pytest.raises(OffsetGapError):
            second.consume(consumer, 1)
        second.rollback()
        first.commit()
        with guest.transaction() as tx:
            tx.consume(consumer, 1)
        assert host.committed("orders", "g") == {0: 2}
        tx = guest.transaction()
        tx.consume(consumer, 1)
        consumer.close()
        with pytest.raises(StoreClosedError):
            tx.commit()
        assert host.committed("orders", "g") == {0: 2}


def test_a_transaction_ends_what_waits(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        writer = guest.writer("orders")
        one, two, three = (
            str(writer.put(b"%d" % n, deliver_after=HOUR, unique_id=None).id) for n in range(3)
        )
        with guest.transaction() as tx:
            assert tx.cancel(one)
            assert tx.reschedule(two, datetime.timedelta(hours=2))
            assert not tx.cancel("none")
        assert {waiting.unique_id for waiting in host.delayed} == {two, three}
        tx = guest.transaction()
        tx.cancel(three)
        host.delayed.cancel(three)
        with pytest.raises(MessageNotFoundError):
            tx.commit()
        tx.rollback()


def test_a_promise_that_is_not_met_in_time_is_known_to_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared(tmp_path / "s", durability="os") as (host, guest, _):
        log = engine_of(host).commit_log
        tx = guest.transaction(durability="disk")
        tx.put("orders", b"a")
        with monkeypatch.context() as patched:
            patched.setattr(log, "wait_flushed", lambda end, limit_ms: False)
            with pytest.raises(DurabilityTimeoutError):
                tx.commit()
        assert tx.outcome == "commit"
        tx.commit()
        assert bodies(guest) == [b"a"]


# ---- half messages ----


def test_half_messages_are_the_host_s(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        one = guest.transactions.prepare(
            *("orders", b"one"), group="g", queue_id=2, tags="t", keys=["k"],
            properties={"p": "v"}, flag=3, born_time=1_000,
        )  # fmt: skip
        two = guest.transactions.prepare("orders", b"two", group="g", durability="os")
        opened = guest.transactions.open()
        assert [(o.id, o.queue_id, o.group) for o in opened] == [(one.id, 2, "g"), (two.id, 0, "g")]
        assert opened[0].unique_id == one.unique_id
        assert host.transactions.open()[0].id == one.id
        at = one.commit()
        assert guest.transactions.commit(one.id) == at
        message = host.get(at)
        assert (message.body, message.tags, message.keys) == (b"one", "t", ("k",))
        assert (message.flag, message.born_timestamp_ms, message.queue_id) == (3, 1_000, 2)
        assert message.properties["p"] == "v"
        two.rollback()
        two.rollback()
        with pytest.raises(TransactionSettledError):
            two.commit()
        with pytest.raises(UnknownTransactionError):
            guest.transactions.commit(999_999)
        with pytest.raises(MessageRejectedError):
            guest.transactions.prepare("orders", b"", group="g", properties={"DELAY": "1"})
        assert (guest.transactions.open(), guest.transactions.errors) == ([], [])
        assert bodies(guest) == [b"one"]
        assert guest.transactions is guest.transactions


# ---- delayed messages ----


def test_what_waits_is_changed_by_the_host(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        writer = guest.writer("orders")
        puts = [writer.put(b"%d" % n, deliver_after=HOUR) for n in range(4)]
        delayed = guest.delayed
        assert delayed.cancel(puts[0]) is CancelResult.CANCELLED
        assert delayed.cancel(puts[0]) is CancelResult.ABSENT
        assert delayed.cancel(str(puts[1].id)) is CancelResult.CANCELLED
        third = delayed.get(str(puts[2].id))
        assert third is not None
        assert delayed.cancel(third) is CancelResult.CANCELLED
        assert delayed.reschedule(puts[3], datetime.timedelta(0))
        assert bytes(next(guest.consumer("orders").follow(20)).body) == b"3"
        assert delayed.cancel(puts[3]) is CancelResult.DELIVERED
        assert not delayed.reschedule(puts[3], 5)
        assert len(host.delayed) == 0
        writer.put(b"level", delay_level=18)
        with pytest.raises(MessageRejectedError, match="level"):
            delayed.cancel(next(iter(delayed)))
        with pytest.raises(TypeError):
            delayed.cancel(5)  # type: ignore[arg-type]


def test_what_waits_is_seen_at_once(tmp_path: Path) -> None:
    with shared(tmp_path / "s", durability="os") as (_, guest, _link):
        for n in range(50):
            name = f"topic{n}"
            guest.writer(name).put(b"", delay_level=18 - n % 2)
            guest.writer(name).put(b"", deliver_after=HOUR)
            assert len(guest.delayed) == 2 * n + 2


def test_what_a_transaction_delays_is_delivered(tmp_path: Path) -> None:
    with shared(tmp_path / "s", delay_levels="1s") as (_, guest, _link):
        with guest.transaction() as tx:
            tx.put("orders", b"soon", deliver_after=0.05)
            tx.put("orders", b"level", delay_level=1)
        assert all(put.due_time is not None for put in tx.results)
        found = guest.consumer("orders").follow(20)
        assert [bytes(next(found).body) for _ in range(2)] == [b"soon", b"level"]


def test_a_message_that_comes_again_is_the_host_s(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        name = guest.delayed.repeat("beats", b"b", HOUR, unique_id="beat", properties={"p": "v"})
        assert name == "beat"
        assert guest.delayed.repeat("beats", b"b", HOUR, unique_id="beat") == "beat"
        waiting = host.delayed.get("beat")
        assert waiting is not None
        assert waiting.every == "ms 3600000"
        with pytest.raises(ValueError, match="every"):
            guest.delayed.repeat("beats", b"b", 0)
        assert guest.delayed.cancel("beat")


# ---- retention ----


def test_retention_is_the_host_s(tmp_path: Path) -> None:
    with shared(tmp_path / "s", **SMALL) as (host, guest, _):
        for _ in range(16):
            guest.writer("orders").put(bytes(900))
        rule = Retention(max_bytes=8192, check_every=60, hours=None)
        plan = guest.retention.plan(rule)
        assert plan == host.retention.plan(rule)
        assert plan.count > 0
        guest.retention.hold("h", 0)
        assert guest.retention.holds == host.retention.holds == {"h": 0}
        held = guest.retention.plan(rule)
        assert held.count == 0
        assert "'h'" in str(held.held_by[0])
        assert guest.retention.release("h")
        assert not guest.retention.release("h")
        ran = guest.retention.run(Retention(max_age=HOUR, max_bytes=8192, keep_latest_of=["none"]))
        assert ran.new_begin_offset == host.begin_offset == guest.begin_offset > 0
        with pytest.raises(ConfigError, match="give a rule"):
            guest.retention.plan()
        assert guest.retention.rule is None
        assert guest.retention.last_error is None
        assert guest.retention.events == ()


def test_the_rule_of_the_host_is_seen(tmp_path: Path) -> None:
    rule = Retention(
        max_age=HOUR, disk_watermarks=(0.97, 0.98), hours={2, 3}, keep_unconsumed_by=["g"]
    )
    with rocketstore.open(tmp_path / "s", retention=rule) as host:
        guest, _ = guest_of(host)
        with guest:
            assert guest.retention.rule == rule
            assert guest.retention.plan().segments == host.retention.plan().segments
