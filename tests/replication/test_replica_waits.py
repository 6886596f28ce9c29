"""Puts with durability "replicas(n)": each status of RocketMQ's SYNC_MASTER, in each kind of put."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import (
    ConfigError,
    FencedError,
    NewMessage,
    ReplicasUnavailableError,
    ReplicaTimeoutError,
    Store,
    StoreClosedError,
)
from rocketstore.replication import Master
from rocketstore.replication.master.service import MasterService
from tests.replication.classic_slave import ClassicSlave
from tests.replication.copies import counting
from tests.replication.masters import open_master
from tests.support.small_store import open_small, parts
from tests.support.waiting import wait_until

#: What puts one message, or some, and gives a result.
PUTS: dict[str, Callable[[Store, Any], Any]] = {
    "put": lambda store, level: store.writer("t").put(b"body", durability=level),
    "writer": lambda store, level: store.writer("t", durability=level).put(b"body"),
    "named": lambda store, level: store.writer("t").put(b"body", unique_id="a", durability=level),
    "delayed": lambda store, level: store.writer("t").put(b"body", delay_level=9, durability=level),
    "batch": lambda store, level: store.writer("t").put_batch([b"a", b"b"], durability=level),
    "message": lambda store, level: store.put_message("t", b"body", durability=level),
    "messages": lambda store, level: store.put_batch([NewMessage("t", b"a")], durability=level),
    "ticket": lambda store, level: store.writer("t").submit(b"body", durability=level).result(),
    "future": lambda store, level: (
        store.writer("t").submit(b"body", durability=level).future().result(20)
    ),
    "aio": lambda store, level: asyncio.run(_put_in_loop(store, level)),
    "aio batch": lambda store, level: asyncio.run(_put_batch_in_loop(store, level)),
}


async def _put_in_loop(store: Store, level: Any) -> Any:
    async with rocketstore.aio.attach(store) as attached:
        return await attached.writer("t").put(b"body", durability=level)


async def _put_batch_in_loop(store: Store, level: Any) -> Any:
    async with rocketstore.aio.attach(store) as attached:
        return await attached.writer("t").put_batch([b"a", b"b"], durability=level)


async def _refused_in_a_loop(store: Store) -> None:
    async with rocketstore.aio.attach(store) as attached:
        writer = attached.writer("u")
        await writer.put(b"a first one, by which the writer is there")
        end = store.end_offset
        with pytest.raises(ConfigError, match="needs replicas"):
            await writer.put(b"body", durability="replicas(2)")
        assert store.end_offset == end


every_put = pytest.mark.parametrize("put", PUTS.values(), ids=PUTS)

#: How long a put waits where no replica acknowledges.
QUICK = timedelta(milliseconds=200)
#: Times of a put, seconds: the next one where the disk needed longer than that.
BOUNDS_S = (0.03, 0.3, 3, 15)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[tuple[Store, MasterService]]:
    with open_master(tmp_path) as served:
        yield served


@pytest.fixture
def slaves(master: tuple[Store, MasterService]) -> Iterator[Callable[..., ClassicSlave]]:
    with ExitStack() as stack:

        def connect(**options: Any) -> ClassicSlave:
            count = counting(master[1])
            slave = stack.enter_context(ClassicSlave(master[1].address, **options))
            wait_until(lambda: counting(master[1]) == count + 1)
            return slave

        yield connect


@every_put
def test_a_put_returns_once_a_replica_has_it(
    master: tuple[Store, MasterService], slaves: Any, put: Any
) -> None:
    """S000-49, S001-62, S001-63: and the result says the promise that was met."""
    slave = slaves()
    result = put(master[0], "replicas")
    assert result.durability == "replicas(2)"
    assert slave.end >= result.end_offset


@every_put
def test_a_put_without_a_replica_says_so_at_once(
    master: tuple[Store, MasterService], put: Any
) -> None:
    """S000-53, S001-59, S001-61: the message is stored, on the disk of this machine."""
    store, _ = master
    with pytest.raises(
        ReplicasUnavailableError, match=r"replicas\(2\) needs 1 .* has 0 of 0"
    ) as caught:
        put(store, "replicas(2)")
    assert caught.value.status == "SLAVE_NOT_AVAILABLE"
    assert caught.value.result is not None
    assert caught.value.result.end_offset == store.flushed_offset == store.end_offset


@every_put
def test_a_put_that_no_replica_acknowledges_times_out(tmp_path: Path, put: Any) -> None:
    """S000-52, S001-64: after `replica_timeout`."""
    with (
        open_master(tmp_path, replica_timeout=QUICK) as (store, service),
        ClassicSlave(service.address, acknowledges=False),
    ):
        wait_until(lambda: counting(service) == 1)
        began = time.monotonic()
        with pytest.raises(ReplicaTimeoutError, match="within 200 ms") as caught:
            put(store, "replicas(2)")
        assert time.monotonic() - began >= QUICK.total_seconds()
        assert caught.value.status == "FLUSH_SLAVE_TIMEOUT"
        assert caught.value.result is not None
        assert caught.value.result.end_offset == store.flushed_offset


def put_in_vain(store: Store, level: Any) -> rocketstore.DurabilityTimeoutError:
    """What a put says whose replicas do not acknowledge it within a time of its own."""
    for timeout_s in BOUNDS_S:
        with pytest.raises(rocketstore.DurabilityTimeoutError) as caught:
            store.writer("t").put(b"body", durability=level, timeout_s=timeout_s)
        if type(caught.value) is not rocketstore.DurabilityTimeoutError:  # the disk was in time
            break
    return caught.value


def test_three_machines_are_two_replicas(master: tuple[Store, MasterService], slaves: Any) -> None:
    """K-74: the acknowledgement of one does not stand for both."""
    store, _ = master
    writer = store.writer("t")
    slave = slaves()
    writer.put(b"first")
    wait_until(lambda: slave.end == store.end_offset)
    with pytest.raises(ReplicasUnavailableError, match="needs 2 .* has 1 of 1 that are connected"):
        writer.put(b"body", durability="replicas(3)")
    slaves(acknowledges=False)
    late = put_in_vain(store, "replicas(3)")
    assert type(late) is ReplicaTimeoutError
    slaves()
    assert writer.put(b"body", durability="replicas(3)").durability == "replicas(3)"


def test_a_replica_that_left_does_not_count(
    master: tuple[Store, MasterService], slaves: Any
) -> None:
    """K-74: its old number satisfies no later put."""
    store, service = master
    slave = slaves()
    store.writer("t").put(b"body", durability="replicas")
    slave.close()
    wait_until(lambda: not service.replicas)
    with pytest.raises(ReplicasUnavailableError):
        store.writer("t").put(b"body", durability="replicas")


def test_a_replica_far_behind_is_not_waited_for(tmp_path: Path) -> None:
    """S000-50, S001-60: no nearer than `max_lag_bytes`."""
    with (
        open_master(tmp_path, max_lag_bytes=1000, replica_timeout=QUICK) as (store, service),
        ClassicSlave(service.address, acknowledges=False) as slave,
    ):
        store.put_message("t", bytes(2000))
        wait_until(lambda: slave.end == store.end_offset)
        with pytest.raises(
            ReplicasUnavailableError, match="max_lag_bytes = 1000 behind, and has 0 of 1 that"
        ):
            store.put_message("t", b"body", durability="replicas")
        slave.report(slave.end)
        wait_until(lambda: service.replicas[0].synced > 0)
        with pytest.raises(ReplicaTimeoutError):
            store.put_message("t", b"body", durability="replicas")


def test_the_waits_for_disk_and_replicas_have_times_of_their_own(
    master: tuple[Store, MasterService], slaves: Any
) -> None:
    """S000-54: a slow disk is a DurabilityTimeoutError, and no replica is waited for (K-72)."""
    slaves()
    group = parts(master[0]).commit_log.log.group
    group.take_turn()  # nobody flushes
    try:
        with pytest.raises(rocketstore.DurabilityTimeoutError) as caught:
            master[0].writer("t").put(b"body", durability="replicas", timeout_s=0.05)
    finally:
        group.give_turn()
    assert type(caught.value) is rocketstore.DurabilityTimeoutError
    assert caught.value.status == "FLUSH_DISK_TIMEOUT"


def test_a_time_of_the_put_bounds_both_waits(
    master: tuple[Store, MasterService], slaves: Any
) -> None:
    """Without it the put would wait the 20 s of this master."""
    slaves(acknowledges=False)
    late = put_in_vain(master[0], "replicas")
    assert type(late) is ReplicaTimeoutError
    [waited_ms] = re.findall(r"within (\d+) ms", str(late))
    assert int(waited_ms) <= BOUNDS_S[-1] * 1000


def test_many_puts_wait_at_once(master: tuple[Store, MasterService], slaves: Any) -> None:
    """S000-51: each is told of its own; the replica is sent what was flushed at once."""
    slave = slaves()
    writer = master[0].writer("t")

    def put(number: int) -> Any:
        return writer.put(b"%d" % number, durability="replicas")

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(put, range(400)))
    assert {result.durability for result in results} == {"replicas(2)"}
    assert slave.end == master[0].end_offset


def test_a_store_can_promise_it_by_default(tmp_path: Path) -> None:
    """Reads, flushes and files are those of a "disk" store."""
    with open_master(tmp_path, {"durability": "replicas(2)"}) as (store, service):
        assert store.config.visible_is_flushed
        with pytest.raises(ReplicasUnavailableError):
            store.put_message("t", b"body")
        with ClassicSlave(service.address) as slave:
            wait_until(lambda: slave.end == store.end_offset)
            wait_until(lambda: service.replicas[0].synced == slave.end)
            assert store.put_message("t", b"body").durability == "replicas(2)"
            assert store.writer("t").durability == "replicas(2)"
            with store.transaction() as tx:
                tx.put("t", b"all or none")
        wait_until(lambda: not service.replicas)
        with pytest.raises(ReplicasUnavailableError), store.transaction() as tx:
            tx.put("t", b"stored here only")


def test_a_store_without_a_master_refuses_it(tmp_path: Path) -> None:
    """Before anything is stored."""
    with open_small(tmp_path) as store:
        for put in PUTS.values():
            with pytest.raises(ConfigError, match=r"needs replicas; open the store with"):
                put(store, "replicas(2)")
        with pytest.raises(ConfigError, match=r"replicas\(3\)"):
            store.transaction(durability="replicas(3)")
        assert store.end_offset == 0
        asyncio.run(_refused_in_a_loop(store))
    with pytest.raises(ConfigError, match="durability = 'replicas\\(2\\)': needs replicas"):
        open_small(tmp_path, durability="replicas")


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda store, service: service.fence(FencedError("another one is master")), FencedError),
        (lambda store, service: store.close(), StoreClosedError),
        (
            lambda store, service: parts(store).commit_log.fail(OSError(5, "a sync failed")),
            rocketstore.StoreFailedError,
        ),
    ],
    ids=["fenced", "closed", "failed"],
)
@pytest.mark.parametrize("kind", ["put", "future", "aio"])
def test_who_waits_hears_of_the_end(tmp_path: Path, end: Any, error: Any, kind: str) -> None:
    with (
        open_master(tmp_path, replica_timeout=timedelta(seconds=60)) as (store, service),
        ClassicSlave(service.address, acknowledges=False),
    ):
        wait_until(lambda: counting(service) == 1)
        heard: list[BaseException] = []

        def wait() -> None:
            try:
                PUTS[kind](store, "replicas")
            except rocketstore.RocketStoreError as caught:
                heard.append(caught)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: 0 < store.end_offset == store.flushed_offset)
        wait_until(lambda: service.replicas[0].sent == store.end_offset)
        end(store, service)
        thread.join(20)
        assert [type(one) for one in heard] == [error]


def test_a_late_ticket_is_asked_again(master: tuple[Store, MasterService], slaves: Any) -> None:
    """What was late may still come."""
    slave = slaves(acknowledges=False)
    ticket = master[0].writer("t").submit(b"body", durability="replicas")
    assert not ticket.done()
    master[0].wait_flushed(ticket.end_offset)
    with pytest.raises(ReplicaTimeoutError):
        ticket.result(0.01)
    slave.report(ticket.end_offset)
    assert ticket.result(20).durability == "replicas(2)"
    assert ticket.done()


@pytest.mark.parametrize("level", [-3, 3, 11, 10**6])
def test_a_level_that_there_is_not_is_an_error_without_replicas_and_with(
    tmp_path: Path, level: int
) -> None:
    with open_small(tmp_path) as store:
        log = parts(store).commit_log.log
        result = store.writer("orders").put(b"x")
        with pytest.raises((rocketstore.ConfigError, ValueError)):
            log.await_promise(result.end_offset, level, 10, True, None)
        if level > 2:
            with pytest.raises((rocketstore.ConfigError, ValueError)):
                log.await_promise(result.end_offset + 1, level, 10, False, None)
        copies = log.group.keep_copies()
        if level != 3:
            with pytest.raises(ValueError, match="level"):
                copies.met(0, level)


def test_what_is_done_to_delayed_messages_waits_for_machines_as_well(tmp_path: Path) -> None:
    """The promise of the store is that of `store.delayed`, too."""
    later = timedelta(hours=1)
    options = {"durability": "replicas(2)"}
    with open_small(tmp_path, replication=Master(listen="127.0.0.1:0"), **options) as store:
        for body in (b"a", b"b"):
            with pytest.raises(ReplicasUnavailableError):
                store.writer("t").put(body, deliver_after=later)
        first, second = store.delayed
        for change in (
            lambda: store.delayed.cancel(first),
            lambda: store.delayed.reschedule(second, first.due_time + later),
            lambda: store.delayed.repeat("t", b"body", every=later, unique_id="c"),
        ):
            with pytest.raises(ReplicasUnavailableError):
                change()
            assert store.flushed_offset == store.end_offset
