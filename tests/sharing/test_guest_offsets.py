"""Groups of guests: one consumer owns a queue, in whichever process, and over the death of a host."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import rocketstore
from rocketstore import GroupClaimedError, Store
from rocketstore.errors import (
    DurabilityTimeoutError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    StoreClosedError,
)
from tests.sharing.guest_tools import LocalLink, guest_engine, guest_of, shared
from tests.support.small_store import engine_of


@pytest.fixture
def several(tmp_path: Path) -> Iterator[tuple[Store, Store, LocalLink, Store, LocalLink]]:
    """A host with ten messages, and two guests with their links."""
    with ExitStack() as stack:
        host = stack.enter_context(rocketstore.open(tmp_path / "s"))
        host.writer("orders").put_batch([b"%d" % n for n in range(10)])
        one, link = guest_of(host)
        stack.enter_context(one)
        two, other = guest_of(host)
        stack.enter_context(two)
        yield host, one, link, two, other


def test_a_commit_is_at_the_host_and_in_the_files(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        host.writer("orders").put_batch([b"a", b"b", b"c"])
        consumer = guest.consumer("orders", group="g")
        assert [bytes(one.body) for one in consumer.poll(2)] == [b"a", b"b"]
        assert consumer.commit() == {0: 2}
        for store in (host, guest):
            assert store.committed("orders", "g") == {0: 2}
            assert store.groups("orders") == ["g"]
        assert consumer.commit({0: 3}, durability="os") == {0: 3}
        consumer.rewind()
        assert consumer.positions == {0: 3}
        consumer.close()
        with host.consumer("orders", group="g") as next_one:
            assert next_one.positions == {0: 3}


def test_a_commit_waits_for_the_disk_at_the_host(tmp_path: Path) -> None:
    options = {"durability": "os", "flush_interval_ms": 100_000}
    with shared(tmp_path / "s", **options) as (host, guest, _):
        end = guest.writer("orders").put_batch([b"a", b"b"]).end_offset
        consumer = guest.consumer("orders", group="g")
        consumer.poll(1)
        consumer.commit(durability="os")
        assert host.flushed_offset < end
        consumer.poll(1)
        consumer.commit()
        assert host.flushed_offset >= end


def test_what_is_stored_without_a_sync_is_stored_again_with_one(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, link):
        host.writer("orders").put(b"a")
        consumer = guest.consumer("orders", group="g")
        consumer.commit({0: 0})
        consumer.poll()
        consumer.commit(durability="os")
        assert engine_of(host).offsets.unsynced
        consumer.commit()
        assert not engine_of(host).offsets.unsynced
        link.calls.clear()
        consumer.commit()
        assert link.calls == [], "all of it is on the disk, and nothing has moved"


def test_an_offset_beyond_the_queue_is_refused_by_both(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        host.writer("orders").put(b"a")
        consumer = guest.consumer("orders", group="g")
        consumer.poll()
        with pytest.raises(OffsetOutOfRangeError):
            consumer.commit({0: 2})
        offsets = guest_engine(guest).offsets
        with pytest.raises(OffsetOutOfRangeError):
            offsets.commit("orders", "g", {0: 2}, 0, lambda end: None, consumer)
        assert host.committed("orders", "g") == {}


def test_one_consumer_owns_a_group_wherever_it_is(
    several: tuple[Store, Store, LocalLink, Store, LocalLink],
) -> None:
    host, one, _, two, _ = several
    stores = [host, one, two]
    for owner in stores:
        with owner.consumer("orders", group="g"):
            for store in stores:
                with pytest.raises(GroupClaimedError):
                    store.consumer("orders", group="g")
                store.consumer("orders", group="another").close()
    with one.consumer("orders", group="g", queue_id=0):
        two.consumer("orders", group="g", queue_id=1).close()
        with pytest.raises(GroupClaimedError):
            two.consumer("orders", group="g", queue_ids=[0, 1])


def test_a_claim_ends_with_the_guest_or_with_its_consumer(
    several: tuple[Store, Store, LocalLink, Store, LocalLink],
) -> None:
    _, one, link, two, _ = several
    consumer = one.consumer("orders", group="g")
    one.close()
    assert not link.state.claims
    with pytest.raises(StoreClosedError):
        consumer.poll()
    consumer = two.consumer("orders", group="g")
    del consumer
    gc.collect()
    two.consumer("orders", group="g").close()  # the one that nobody closed is given back first


def test_a_closed_consumer_commits_nothing(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        host.writer("orders").put(b"a")
        consumer = guest.consumer("orders", group="g")
        offsets = guest_engine(guest).offsets
        consumer.close()
        with pytest.raises(StoreClosedError, match="was closed"):
            offsets.commit("orders", "g", {0: 1}, 0, lambda end: None, consumer)
        assert host.committed("orders", "g") == {}


def test_claims_are_made_again_at_the_next_host(
    several: tuple[Store, Store, LocalLink, Store, LocalLink],
) -> None:
    host, one, link, two, _ = several
    consumer = one.consumer("orders", group="g")
    consumer.poll(3)
    consumer.commit()
    link.lose()
    gc.collect()
    link.meet(host)
    with pytest.raises(GroupClaimedError):
        two.consumer("orders", group="g")
    consumer.poll(3)
    assert consumer.commit() == {0: 6}


@pytest.mark.parametrize("goes_on", [True, False], ids=["holds it", "had it"])
def test_a_group_that_another_one_got_meanwhile_is_lost(
    several: tuple[Store, Store, LocalLink, Store, LocalLink], goes_on: bool
) -> None:
    host, one, link, two, _ = several
    consumer = one.consumer("orders", group="g")
    consumer.poll(3)
    consumer.commit()
    link.lose()
    gc.collect()
    other = two.consumer("orders", group="g")
    other.poll(5)
    other.commit()
    if not goes_on:
        other.close()
    link.meet(host)
    consumer.poll(1)
    for _ in range(2):
        with pytest.raises(GroupClaimedError):
            consumer.commit()
    assert host.committed("orders", "g") == {0: 8}
    consumer.close()
    if goes_on:
        other.poll(1)
        assert other.commit() == {0: 9}
    else:
        one.consumer("orders", group="g").close()


def test_a_commit_before_the_claim_is_made_again_makes_it(tmp_path: Path) -> None:
    with shared(tmp_path / "s") as (host, guest, link):
        host.writer("orders").put(b"a")
        consumer = guest.consumer("orders", group="g")
        consumer.poll()
        link.state.claims.clear()
        gc.collect()
        assert consumer.commit() == {0: 1}
        with pytest.raises(GroupClaimedError):
            host.consumer("orders", group="g")


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
def test_a_commit_without_an_answer_is_asked_again(tmp_path: Path, done: bool) -> None:
    with shared(tmp_path / "s") as (host, guest, link):
        host.writer("orders").put(b"a")
        consumer = guest.consumer("orders", group="g")
        consumer.poll()
        lost: list[str] = []

        def lose(name: str) -> None:
            if name == "commit" and not lost:
                lost.append(name)
                link.lose()
                threading.Thread(target=link.meet, args=(host,)).start()
                raise OutcomeUnknownError("no answer")

        if done:
            link.after = lose
        else:
            link.before = lose
        assert consumer.commit() == {0: 1}
        assert lost
        assert host.committed("orders", "g") == {0: 1}


def test_an_error_of_a_commit_is_that_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared(tmp_path / "s") as (host, guest, _):
        host.writer("orders").put(b"a")
        consumer = guest.consumer("orders", group="g")
        consumer.poll()
        log = engine_of(host).commit_log
        with monkeypatch.context() as patched:
            patched.setattr(log, "wait_flushed", lambda end, limit_ms: False)
            with pytest.raises(DurabilityTimeoutError):
                consumer.commit()
        assert host.committed("orders", "g") == {}
        assert consumer.commit() == {0: 1}


def test_a_claim_whose_answer_is_lost_is_given_back(
    several: tuple[Store, Store, LocalLink, Store, LocalLink],
) -> None:
    _, one, link, two, _ = several

    def lose(name: str) -> None:
        if name == "claim":
            raise RuntimeError("by a signal, say")

    link.after = lose
    with pytest.raises(RuntimeError):
        one.consumer("orders", group="g")
    two.consumer("orders", group="g").close()
