"""Stores that `rocketstore.open(replication=…)` makes masters and copies."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, PutResult, Store, aio
from rocketstore.errors import FencedError, ReplicaStoreError, StoreReadOnlyError
from rocketstore.replication import Master, Replica
from rocketstore.replication.master import sender
from tests.replication.copies import PATIENT
from tests.support.ports import free_address
from tests.support.small_store import SMALL, dispatched, engine_of, open_small
from tests.support.waiting import wait_until

MASTER = Master(listen="127.0.0.1:0", **PATIENT)


def copy_settings(master: Store | str, **settings: Any) -> Replica:
    address = master if isinstance(master, str) else master.replication.address
    return Replica(**{"master": address, "reconnect_every": timedelta(milliseconds=20), **settings})


def caught_up(copy: Store, master: Store) -> None:
    wait_until(
        lambda: copy.replication.caught_up and copy.dispatched_offset == master.visible_offset
    )


def test_a_copy_has_the_messages_of_its_master_and_says_so(tmp_path: Path) -> None:
    with open_small(tmp_path / "master", replication=MASTER) as master:
        master.writer("orders", queue_id=1).put(b"before")
        with open_small(tmp_path / "copy", replication=copy_settings(master)) as copy:
            caught_up(copy, master)
            with copy.consumer("orders", queue_id=1, offset=0) as consumer:
                assert [one.body for one in consumer.poll(10)] == [b"before"]
            end = master.flushed_offset
            status = copy.replication
            assert (status.role, status.protocol, status.term) == ("replica", "rocketstore", 1)
            assert status.address == master.replication.address
            (peer,) = status.peers
            assert (peer.received, peer.synced, peer.lag_bytes, peer.lag_s) == (end, end, 0, 0)
            wait_until(lambda: [one.synced for one in master.replication.peers] == [end])
            status = master.replication
            assert (status.role, status.protocol, status.term) == ("master", "rocketstore", 1)
            assert status.peers[0].lag_bytes == 0
            assert status.bytes >= end
            assert status.error is None
            assert status.fenced_by is None
        wait_until(lambda: not master.replication.peers)
    with rocketstore.open(tmp_path / "copy", "r") as reader:
        status = reader.replication
        assert (status.role, status.protocol, status.peers) == ("replica", None, ())


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Of masters with a limit of bytes a second: all but the first piece goes out once it is set."""
    may_go, keep = threading.Event(), sender.RateLimit.keep

    async def held(limit: sender.RateLimit, now: float, size: int) -> None:
        while not may_go.is_set():
            await asyncio.sleep(0.005)
        await keep(limit, now, size)

    monkeypatch.setattr(sender.RateLimit, "keep", held)
    return may_go


def test_a_copy_on_its_way_says_what_it_lacks(tmp_path: Path, rest: threading.Event) -> None:
    slow = Master(listen="127.0.0.1:0", max_bytes_per_s=100_000)
    with open_small(tmp_path / "master", replication=slow) as master:
        writer = master.writer("orders")
        for _ in range(40):
            writer.put(b"x" * 1000)
        end = master.end_offset
        with open_small(tmp_path / "copy", replication=copy_settings(master)) as copy:
            lags: list[int] = []

            def over() -> bool:
                status = copy.replication
                for peer in status.peers:
                    assert peer.lag_bytes == end - peer.synced
                    assert peer.synced == end or not status.caught_up
                    lags.append(peer.lag_bytes)
                    rest.set()
                return status.caught_up

            wait_until(over)
            assert max(lags) > 0
            assert lags == sorted(lags, reverse=True)
            assert copy.replication.peers[0].lag_s == 0


def test_a_master_says_for_how_long_a_copy_has_lacked_something(
    tmp_path: Path, rest: threading.Event
) -> None:
    """Not for how long what was sent last has been under way: a limit holds the rest back."""
    slow = Master(listen="127.0.0.1:0", max_bytes_per_s=100_000)
    with open_small(tmp_path / "master", replication=slow) as master:
        for _ in range(40):
            master.writer("orders").put(b"x" * 1000)
        with open_small(tmp_path / "copy", replication=copy_settings(master)) as copy:
            wait_until(lambda: any(one.synced for one in master.replication.peers))
            time.sleep(0.5)
            (peer,) = master.replication.peers
            assert peer.lag_bytes > 0
            assert peer.lag_s >= 0.5
            rest.set()
            caught_up(copy, master)
            wait_until(lambda: master.replication.peers[0].lag_bytes == 0)
            assert master.replication.peers[0].lag_s == 0


def test_a_store_of_its_own_has_no_role(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        status = store.replication
        assert (status.role, status.term, status.protocol, status.peers) == (None, 0, None, ())
        store.writer("orders").put(b"as ever")


PUTS: dict[str, Callable[[Store], object]] = {
    "writer": lambda store: store.writer("orders").put(b"x"),
    "put_message": lambda store: store.put_message("orders", b"x"),
    "put_batch": lambda store: store.put_batch([]),
    "put_frames": lambda store: store.put_frames(b""),
    "put_columns": lambda store: store.put_columns([b"x"], topics=["orders"]),
    "transaction": lambda store: store.transaction(),
    "transactions": lambda store: store.transactions,
    "trim": lambda store: store.trim(before_offset=0),
}


def test_a_copy_refuses_what_would_change_its_log(tmp_path: Path) -> None:
    """S003-16: a copy takes no puts, and its error names where they go."""
    with (
        open_small(tmp_path / "master", replication=MASTER) as master,
        open_small(tmp_path / "copy", replication=copy_settings(master)) as copy,
    ):
        for name, put in PUTS.items():
            with pytest.raises(ReplicaStoreError, match="promote") as refused:
                put(copy)
            assert str(master.replication.address) in str(refused.value), name
            other = "retention=Retention(…)" if name == "trim" else "put there"
            assert other in str(refused.value)
            assert refused.value.status == "SERVICE_NOT_AVAILABLE"
        assert copy.end_offset == 0
        copy.flush()


def test_a_copy_delivers_no_delayed_messages_of_its_own(tmp_path: Path) -> None:
    with (
        open_small(tmp_path / "master", replication=MASTER, deliver_delayed=False) as master,
        open_small(tmp_path / "copy", replication=copy_settings(master)) as copy,
    ):
        master.writer("orders").put(b"later", delay_level=1)
        caught_up(copy, master)
        assert len(copy.delayed) == len(master.delayed) == 1
        assert engine_of(copy).delayed_puts.deliver is None


def test_groups_of_a_copy_are_its_own(tmp_path: Path) -> None:
    with (
        open_small(tmp_path / "master", replication=MASTER) as master,
        open_small(tmp_path / "copy", replication=copy_settings(master)) as copy,
    ):
        master.writer("orders").put(b"one")
        caught_up(copy, master)
        with copy.consumer("orders", group="reports", offset="earliest") as consumer:
            assert [one.body for one in consumer.poll(10)] == [b"one"]
            consumer.commit()
        assert copy.groups("orders") == ["reports"]
        assert master.groups("orders") == []


def test_a_copy_opens_as_nothing_else(tmp_path: Path) -> None:
    with (
        open_small(tmp_path / "master", replication=MASTER) as master,
        open_small(tmp_path / "copy", replication=copy_settings(master)),
    ):
        pass
    for replication in (None, MASTER):
        with pytest.raises(ReplicaStoreError, match="'rocketstore follow' does.* promote"):
            open_small(tmp_path / "copy", "r+", replication=replication)
    with rocketstore.open(tmp_path / "copy", "r") as reader, pytest.raises(StoreReadOnlyError):
        reader.writer("orders")


def test_a_copy_opens_without_its_master_and_follows_once_it_is_there(tmp_path: Path) -> None:
    address = free_address()
    with open_small(tmp_path / "copy", replication=copy_settings(address)) as copy:
        wait_until(lambda: copy.replication.last_error is not None)
        assert copy.replication.peers == ()
        assert copy.replication.error is None
        with open_small(tmp_path / "master", replication=Master(listen=address)) as master:
            master.writer("orders").put(b"x")
            wait_until(lambda: copy.replication.must_open_again or copy.replication.caught_up)


@pytest.mark.parametrize("protocol", ["rocketstore", "rocketmq"])
def test_an_empty_copy_begins_where_the_log_of_its_master_does(
    tmp_path: Path, protocol: Any
) -> None:
    settings = Master(listen="127.0.0.1:0", protocol=protocol)
    with open_small(tmp_path / "master", replication=settings) as master:
        writer = master.writer("orders", queue_id=0)
        while master.end_offset < 5 * SMALL["commit_log_file_size_bytes"]:
            writer.put(b"x" * 1000)
        dispatched(master)
        master.trim(before_offset=2 * SMALL["commit_log_file_size_bytes"])
        begin = master.begin_offset
        assert begin > 0, "nothing was trimmed"
        follow = copy_settings(
            master, protocol=protocol, begin="oldest" if protocol == "rocketstore" else begin
        )
        with open_small(tmp_path / "copy", replication=follow) as copy:
            wait_until(lambda: copy.dispatched_offset == master.visible_offset)
            assert copy.begin_offset == begin
            first = master.min_queue_offset("orders", 0)
            assert copy.min_queue_offset("orders", 0) == first
            with copy.consumer("orders", queue_id=0, offset=first) as consumer:
                assert consumer.poll(1)[0].body == b"x" * 1000
        with open_small(tmp_path / "copy", replication=follow) as copy:  # as after any restart
            assert copy.begin_offset == begin
            assert copy.min_queue_offset("orders", 0) == first


@pytest.mark.parametrize("replication", ["127.0.0.1:10912", 10912, Master])
def test_what_is_no_settings_is_refused(tmp_path: Path, replication: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        rocketstore.open(tmp_path / "store", replication=replication)
    assert refused.value.field == "replication"
    assert not (tmp_path / "store").exists()


def test_a_reader_is_neither_master_nor_copy(tmp_path: Path) -> None:
    with open_small(tmp_path):
        pass
    with pytest.raises(ConfigError, match="None with mode='r': a reader changes nothing"):
        rocketstore.open(tmp_path, "r", replication=MASTER)


@pytest.mark.parametrize("master_speaks", ["rocketstore", "rocketmq"])
def test_a_master_names_the_setting_to_a_copy_of_the_other_protocol(
    tmp_path: Path, master_speaks: Any
) -> None:
    other = "rocketmq" if master_speaks == "rocketstore" else "rocketstore"
    listens = Master(listen="127.0.0.1:0", protocol=master_speaks)
    with open_small(tmp_path / "master", replication=listens) as master:
        master.writer("orders").put(b"x")
        follows = copy_settings(master, protocol=other)
        with open_small(tmp_path / "copy", replication=follows) as copy:
            wait_until(lambda: master.replication.last_error is not None)
            assert "needs protocol='rocketmq'" in str(master.replication.last_error)
            assert copy.end_offset == 0


def test_an_address_that_is_taken_leaves_the_store_closed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="in use"):
            open_small(tmp_path, replication=Master(listen=address))
    with open_small(tmp_path, replication=MASTER) as store:
        store.writer("orders").put(b"x")


def acknowledged(master: Store, placed: PutResult) -> bool:
    return [peer.synced for peer in master.replication.peers] == [placed.end_offset]


def test_an_asyncio_store_may_be_a_master(tmp_path: Path) -> None:
    async def put() -> int:
        async with aio.open(tmp_path / "master", replication=MASTER, **SMALL) as master:
            settings = copy_settings(master.blocking)
            first = await master.writer("orders").put(b"x")
            async with aio.open(tmp_path / "copy", replication=settings, **SMALL) as copy:
                await asyncio.to_thread(wait_until, lambda: acknowledged(master.blocking, first))
                placed = await master.writer("orders").put(b"y", durability="replicas(2)")
                return copy.flushed_offset - placed.end_offset

    assert asyncio.run(put()) == 0


def test_nothing_is_delivered_before_the_lease_was_asked(tmp_path: Path) -> None:
    """The first answer takes its time, and is that another one is the master."""

    class Other:
        def deadline(self) -> None:
            time.sleep(0.3)

    with open_small(tmp_path, replication=MASTER, deliver_delayed=False) as store:
        store.writer("orders").put(b"due", deliver_after=timedelta(milliseconds=1))
        end = store.end_offset
    time.sleep(0.01)
    lease = Master(listen="127.0.0.1:0", lease=Other())
    with open_small(tmp_path, replication=lease) as store:
        with pytest.raises(FencedError, match="lease"):
            store.put_message("orders", b"x")
        assert store.end_offset == end


def test_a_master_that_reaches_nobody_to_follow_stays_a_master(tmp_path: Path) -> None:
    """Of a wrong address, or a wrong directory, nothing is left."""
    nobody = free_address()
    with open_small(tmp_path / "master", replication=MASTER) as master:
        master.writer("orders").put(b"17 EUR")
    with (
        open_small(tmp_path / "master", replication=copy_settings(nobody)) as copy,
        pytest.raises(ReplicaStoreError),
    ):
        copy.writer("orders").put(b"refused")
    with open_small(tmp_path / "other", replication=MASTER) as other:
        other.writer("orders").put(b"of another history")
        with open_small(tmp_path / "master", replication=copy_settings(other)) as copy:
            wait_until(lambda: "different stores" in str(copy.replication.error))
    with open_small(tmp_path / "master", replication=MASTER) as master:
        assert master.writer("orders").put(b"18 EUR").queue_offset == 1
        with open_small(tmp_path / "copy", replication=copy_settings(master)) as copy:
            caught_up(copy, master)
    with pytest.raises(ReplicaStoreError):
        open_small(tmp_path / "copy", replication=MASTER)
