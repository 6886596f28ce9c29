"""Transactions of a guest whose host dies before it answers: each counts once, or says that it is not known."""

from __future__ import annotations

import datetime
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import rocketstore
from rocketstore import GroupClaimedError, Store
from rocketstore.errors import (
    BackpressureError,
    OutcomeUnknownError,
    QueueOffsetMismatchError,
    StoreBehindError,
    TransactionSettledError,
)
from rocketstore.services.transactions.commits import REMEMBERED
from rocketstore.sharing import guest_services
from rocketstore.sharing.guest import GuestEngine
from tests.sharing.guest_tools import LocalLink, guest_engine, guest_of, shared
from tests.sharing.links import in_thread
from tests.support.small_store import engine_of
from tests.support.waiting import wait_until

HOUR = datetime.timedelta(hours=1)
SMALL = {"commit_log_file_size_bytes": 4096, "max_message_size_bytes": 1024}


def bodies(store: Store, topic: str = "orders") -> list[bytes]:
    return [bytes(message.body) for message in store.consumer(topic)]


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
        settled, says = (
            (TransactionSettledError, "committed") if done else (OutcomeUnknownError, "again")
        )
        with pytest.raises(settled, match=says):
            tx.rollback()
        if not done:
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


def test_a_commit_at_a_host_whose_log_is_shorter(tmp_path: Path) -> None:
    """What the guest knows of the numbers of one log says nothing of those of the next."""
    with rocketstore.open(tmp_path / "a") as longer:
        guest, link = guest_of(longer)
        for _ in range(3):
            with guest.transaction() as tx:
                tx.put("orders", b"lost")
        link.lose()
    host = rocketstore.open(tmp_path / "b")

    def lose(name: str) -> None:
        if name == "transaction":
            link.lose()
            raise OutcomeUnknownError("it has gone")

    with guest:
        # The guest reads the files of the first store; what it would look at is what the second one has.
        engine = guest_engine(guest)
        engine.reader = engine_of(host).reader
        link.meet(host)
        link.after = lose
        tx = guest.transaction(durability="os")
        tx.put("orders", b"once")
        thread, found = in_thread(tx.commit)
        wait_until(lambda: not link.is_ready)
        host.close()
        link.after = lambda name: None
        with rocketstore.open(tmp_path / "b") as host:
            engine.reader = engine_of(host).reader
            link.meet(host)
            thread.join()
            assert found == [None]
            assert bodies(host) == [b"once"]
            link.close()


def test_a_commit_that_is_asked_for_again_after_many_others(tmp_path: Path) -> None:
    """More than a host remembers; the same host."""
    with shared(tmp_path / "s", durability="memory") as (host, guest, link):
        lost = [1]

        def lose(name: str) -> None:
            if name == "transaction" and lost:
                lost.pop()
                raise OutcomeUnknownError("it is slow")

        link.after = lose
        tx = guest.transaction()
        tx.put("orders", b"once")
        with pytest.raises(OutcomeUnknownError):
            tx.commit()
        for _ in range(REMEMBERED + 1):
            with host.transaction() as other:
                other.put("others", b"")
        tx.commit()
        assert tx.outcome == "commit"
        assert bodies(host) == [b"once"]


def test_an_error_of_the_call_itself_is_certain(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, link):

        def refuse(name: str) -> None:
            if name == "transaction":
                raise TypeError("claims: expected a list of at most 65536")

        link.before = refuse
        tx = guest.transaction()
        tx.put("orders", b"a")
        with pytest.raises(TypeError):
            tx.commit()
        tx.rollback()
        assert tx.outcome == "rollback"
        assert bodies(host) == []


def test_a_commit_that_is_interrupted_may_count(tmp_path: Path) -> None:
    """Ctrl-C while the next host is at work on it."""
    with shared(tmp_path / "s") as (host, guest, link):

        def interrupt(name: str) -> None:
            if name == "transaction":
                raise KeyboardInterrupt

        link.lose()
        tx = guest.transaction()
        tx.put("orders", b"a")
        link.meet(host, "another")
        link.before = interrupt
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
        link.before = lambda name: None
        with pytest.raises(OutcomeUnknownError, match="again"):
            tx.rollback()
        tx.commit()
        assert bodies(host) == [b"a"]


def test_a_transaction_whose_group_another_has_moved(tmp_path: Path) -> None:
    """While there was no host: what it would move was moved already."""
    with shared(tmp_path / "s") as (host, guest, link):
        host.writer("orders").put_batch([b"a", b"b"])
        consumer = guest.consumer("orders", group="g")
        lost = [1]

        def lose(name: str) -> None:
            if name == "transaction" and lost:
                lost.pop()
                link.lose()
                gc.collect()  # the claim of the guest ends with its owner
                with host.consumer("orders", group="g") as other, host.transaction() as moved:
                    for message in moved.consume(other):
                        moved.put("moved", bytes(message.body))
                link.meet(host, "another")
                raise OutcomeUnknownError("it has gone")

        link.before = lose
        with (
            pytest.raises(GroupClaimedError, match="while the host changed"),
            guest.transaction() as tx,
        ):
            for message in tx.consume(consumer):
                tx.put("moved", bytes(message.body))
        assert bodies(host, "moved") == [b"a", b"b"]


def test_a_refused_transaction_leaves_the_group_where_it_was(tmp_path: Path) -> None:
    """Another consumer that then moves it as far as the transaction would have is met all the same."""
    with shared(tmp_path / "s") as (host, guest, link):
        host.writer("orders").put_batch([b"a", b"b"])
        consumer = guest.consumer("orders", group="g")
        with pytest.raises(QueueOffsetMismatchError), guest.transaction() as tx:
            assert len(tx.consume(consumer)) == 2
            tx.put("moved", b"", expected_queue_offset=5)
        (kept,) = guest_engine(guest).offsets._kept
        assert kept.stored == {}
        link.lose()
        gc.collect()  # the claim of the guest ends with its owner
        with host.consumer("orders", group="g") as other, host.transaction() as moved:
            moved.consume(other)
        link.meet(host, "another")
        with (
            pytest.raises(GroupClaimedError, match="while the host changed"),
            guest.transaction() as tx,
        ):
            tx.consume(consumer)
            tx.put("moved", b"again")
        assert "moved" not in host.topics()
