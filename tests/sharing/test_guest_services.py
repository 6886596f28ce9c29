"""Transactions, half messages, delays and retention of a guest: its host does them, once."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import rocketstore
from rocketstore import CancelResult, OffsetGapError, Retention, Store
from rocketstore.errors import (
    BackpressureError,
    ConfigError,
    DurabilityTimeoutError,
    MessageNotFoundError,
    MessageRejectedError,
    OutcomeUnknownError,
    QueueOffsetMismatchError,
    StoreBehindError,
    StoreClosedError,
    TransactionSettledError,
    UnknownTransactionError,
)
from rocketstore.sharing import guest_services
from rocketstore.sharing.guest import GuestEngine
from tests.sharing.guest_tools import LocalLink, guest_of, shared
from tests.sharing.links import in_thread
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


class Losing:
    """Loses the answer of each `transaction`, or the call, and then has a host again."""

    def __init__(self, link: LocalLink, next_host: Callable[[], Store], *, done: bool) -> None:
        self.times, self._link, self._next = 1, link, next_host
        if done:
            link.after = self
        else:
            link.before = self

    def __call__(self, name: str) -> None:
        if name == "transaction" and self.times:
            self.times -= 1
            self._link.lose()
            # A close in this thread, which is in a call, would not wait for its end.
            threading.Thread(target=lambda: self._link.meet(self._next())).start()
            raise OutcomeUnknownError("no answer")


@pytest.mark.parametrize("same", [True, False], ids=["the same host", "another host"])
@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_transaction_without_an_answer_counts_once(
    tmp_path: Path, done: bool, same: bool
) -> None:
    hosts = [rocketstore.open(tmp_path / "s")]
    hosts[0].writer("orders").put(b"order")
    guest, link = guest_of(hosts[0])

    def next_host() -> Store:
        if not same:
            hosts[-1].close()
            hosts.append(rocketstore.open(tmp_path / "s"))
        return hosts[-1]

    with guest:
        losing = Losing(link, next_host, done=done)
        consumer = guest.consumer("orders", group="g")
        tx = guest.transaction()
        tx.consume(consumer)
        tx.put("invoices", b"a")
        tx.commit()
        assert losing.times == 0
        assert tx.outcome == "commit"
        with guest.transaction() as later:
            later.put("invoices", b"b")
        assert bodies(guest, "invoices") == [b"a", b"b"]
        assert bodies(hosts[-1], "invoices") == [b"a", b"b"]
        assert hosts[-1].committed("orders", "g") == {0: 1}
        consumer.close()
    hosts[-1].close()


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_transaction_whose_host_gives_no_answer_is_unknown_until_it_is_settled(
    tmp_path: Path, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuestEngine, "limit_ms", 300)
    with shared(tmp_path / "s") as (host, guest, link):
        lost = [1]

        def lose(name: str) -> None:
            if name == "transaction" and lost:
                lost.pop()
                raise OutcomeUnknownError("it is stopped")

        link.before, link.after = (link.before, lose) if done else (lose, link.after)
        tx = guest.transaction()
        tx.put("orders", b"a")
        with pytest.raises(OutcomeUnknownError):
            tx.commit()
        assert tx.outcome is None
        with pytest.raises(OutcomeUnknownError, match="commit\\(\\) again"):
            tx.rollback()
        tx.commit()
        with pytest.raises(TransactionSettledError):
            tx.rollback()
        assert bodies(host) == [b"a"]


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_rollback_after_the_death_of_the_host_says_what_it_did(
    tmp_path: Path, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GuestEngine, "limit_ms", 300)
    host = rocketstore.open(tmp_path / "s")
    guest, link = guest_of(host)
    with guest:
        tx = guest.transaction()
        tx.put("orders", b"a")

        def lose(name: str) -> None:
            if name == "transaction":
                link.lose()
                raise OutcomeUnknownError("it has gone")

        link.before, link.after = (link.before, lose) if done else (lose, link.after)
        with pytest.raises(OutcomeUnknownError):
            tx.commit()
        host.close()
        with rocketstore.open(tmp_path / "s") as host:
            link.meet(host)
            if done:
                with pytest.raises(TransactionSettledError):
                    tx.rollback()
            else:
                tx.rollback()
            assert tx.outcome == ("commit" if done else "rollback")
            assert bodies(host) == ([b"a"] if done else [])
            link.close()


def test_a_refusal_after_a_call_without_an_answer_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host may be at work upon the first call, and refuse the second one."""
    monkeypatch.setattr(GuestEngine, "limit_ms", 2000)
    with shared(tmp_path / "s") as (host, guest, link):
        errors = [BackpressureError("it is busy"), OutcomeUnknownError("no answer")]

        def fail(name: str) -> None:
            if name == "transaction" and errors:
                error = errors.pop()
                if errors:
                    link.lose()
                    threading.Thread(target=link.meet, args=(host,)).start()
                raise error

        link.before = fail
        tx = guest.transaction()
        tx.put("orders", b"a")
        with pytest.raises(OutcomeUnknownError, match="settles it") as caught:
            tx.commit()
        assert isinstance(caught.value.__cause__, BackpressureError)
        assert tx.outcome is None
        tx.commit()
        assert bodies(host) == [b"a"]


def test_a_log_that_cannot_be_read_says_nothing_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rocketstore.open(tmp_path / "s") as host:
        guest, link = guest_of(host)
        monkeypatch.setattr(GuestEngine, "limit_ms", 300)
        tx = guest.transaction()
        tx.put("orders", b"a")

        def lose(name: str) -> None:
            if name == "transaction":
                link.lose()
                raise OutcomeUnknownError("it has gone")

        def behind(*_: object) -> NoReturn:
            raise StoreBehindError("s", "consume queues", "it stands")

        link.after = lose
        with pytest.raises(OutcomeUnknownError):
            tx.commit()
        link.after = lambda name: None
        link.meet(host, "another")
        with monkeypatch.context() as patch:
            patch.setattr(guest_services, "messages_from", behind)
            for end in (tx.commit, tx.rollback):
                with pytest.raises(OutcomeUnknownError, match="settles it"):
                    end()
        tx.commit()
        assert tx.outcome == "commit"
        assert bodies(host) == [b"a"]
        guest.close()


def test_a_commit_without_an_answer_among_those_of_other_threads(tmp_path: Path) -> None:
    """The host has answered a later one, and dies before it answers the first."""
    done, goes_on = threading.Event(), threading.Event()

    def wait_and_lose(name: str) -> None:
        if name == "transaction" and not done.is_set():
            done.set()
            goes_on.wait(60)
            raise OutcomeUnknownError("it has gone")

    host = rocketstore.open(tmp_path / "s")
    guest, link = guest_of(host)
    with guest:
        link.after = wait_and_lose
        first, second = guest.transaction(), guest.transaction()
        first.put("orders", b"first")
        second.put("orders", b"second")
        thread, found = in_thread(first.commit)
        done.wait(60)
        second.commit()
        link.lose()
        host.close()
        with rocketstore.open(tmp_path / "s") as host:
            link.meet(host)
            goes_on.set()
            thread.join()
            assert found == [None]
            assert bodies(host) == [b"first", b"second"]
            link.close()


def test_a_host_that_comes_and_goes_while_a_commit_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has committed, and nobody knows yet that it has gone: what readers see is no answer."""
    with rocketstore.open(tmp_path / "s") as host:
        guest, link = guest_of(host)
        read = guest_services.messages_from

        def dying(*given: Any) -> Any:
            return iter(()) if link.session == 2 else read(*given)

        def gone(name: str) -> None:
            if name == "transaction" and link.session == 2:
                raise OutcomeUnknownError("it has gone")

        monkeypatch.setattr(guest_services, "messages_from", dying)
        awaits, await_host = threading.Event(), link.await_host

        def awaited(deadline_ns: int, ended: int | None = None) -> None:
            if ended is not None:
                awaits.set()
            await_host(deadline_ns, ended)

        link.after = gone
        monkeypatch.setattr(link, "await_host", awaited)
        link.lose()
        tx = guest.transaction()
        tx.put("orders", b"a")
        thread, found = in_thread(tx.commit)
        link.meet(host, "the second")
        awaits.wait(60)
        link.lose()
        link.meet(host, "the third")
        thread.join()
        assert found == [None]
        assert link.calls.count("transaction") == 1
        assert bodies(host) == [b"a"]
        guest.close()


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
