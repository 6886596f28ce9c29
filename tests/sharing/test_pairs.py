"""A guest has the same `Store`: each scene sees what it sees with an ordinary store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import GroupClaimedError, Retention, Store
from tests.process.other_process import HOLD, SMALL, OtherProcess, other_process
from tests.sharing.conftest import Guests
from tests.sharing.scenes import SCENES, seen, seen_of
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def shared_guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One host for all scenes: each has topics of its own."""
    root = tmp_path_factory.mktemp("shared") / "store"
    with other_process(HOLD, root, shared="host") as host:
        assert host.line() == "open"
        with rocketstore.open(root, shared="guest", **SMALL) as store:
            yield store


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with rocketstore.open(tmp_path_factory.mktemp("ordinary") / "store", **SMALL) as store:
        yield store


@pytest.mark.parametrize("name", SCENES)
def test_a_guest_sees_what_an_ordinary_program_sees(
    shared_guest: Store, ordinary: Store, name: str
) -> None:
    scene = SCENES[name]
    wanted = scene(ordinary, name), seen_of(ordinary, name)
    assert (scene(shared_guest, name), seen_of(shared_guest, name)) == wanted
    with rocketstore.open(shared_guest.path, "r", **SMALL) as reader:
        assert seen_of(reader, name) == wanted[1]


def test_a_guest_of_tasks(host: OtherProcess, root: Path) -> None:
    """`rocketstore.aio.open(shared=)`."""

    async def work() -> list[bytes]:
        async with rocketstore.aio.open(root, shared="guest", **SMALL) as store:
            writer = store.writer("orders")
            await asyncio.gather(*(writer.put(b"%d" % n) for n in range(20)))
            return [message.body async for message in store.consumer("orders")]

    assert sorted(asyncio.run(work())) == sorted(b"%d" % n for n in range(20))


def test_a_guest_trims_and_retains(guest: Store) -> None:
    writer = guest.writer("orders")
    last = [writer.put(bytes(9000)) for _ in range(60)][-1]
    guest.flush()
    begin = guest.trim(before_offset=last.physical_offset // 2)
    assert guest.begin_offset == begin > 0
    assert guest.min_queue_offset("orders", 0) > 0
    plan = guest.retention.run(Retention(max_bytes=2 * SMALL["commit_log_file_size_bytes"]))
    assert guest.begin_offset == plan.new_begin_offset > begin


def test_a_guest_configures_its_host(guest: Store, guests: Guests) -> None:
    changed = guest.configure(flush_interval_ms=123)
    assert changed.flush_interval_ms == guest.config.flush_interval_ms == 123
    assert guests().config.flush_interval_ms == 123


def test_guests_share_groups(guest: Store, guests: Guests) -> None:
    """A group has one consumer among all processes; another guest goes on where it was."""
    other = guests()
    guest.writer("orders").put_batch([b"%d" % n for n in range(10)])
    consumer = guest.consumer("orders", group="billing")
    assert len(consumer.poll(4)) == 4
    consumer.commit()
    with pytest.raises(GroupClaimedError, match=f"made by process {os.getpid()} "):
        other.consumer("orders", group="billing")
    consumer.close()
    with other.consumer("orders", group="billing") as after:
        assert [message.body for message in after.poll(1)] == [b"4"]


def test_a_guest_reads_its_own_puts_at_once(guest: Store, guests: Guests) -> None:
    """No wait, no sleep: as soon as the put has returned."""
    writer, consumer = guest.writer("orders"), guest.consumer("orders")
    for n in range(300):
        writer.put(b"%d" % n, durability="os")
        assert [message.body for message in consumer.poll()] == [b"%d" % n]
        assert guest.max_queue_offset("orders", 0) == n + 1


def test_all_guests_see_one_order(guest: Store, guests: Guests) -> None:
    other = guests()
    for n in range(20):
        result = (guest, other)[n % 2].writer("orders").put(b"%d" % n)
        assert result.queue_offset == n
    wait_until(lambda: len(seen(other, "orders")) == 20)
    assert seen(guest, "orders") == seen(other, "orders")


def test_a_writer_is_closed_with_its_guest(guest: Store, guests: Guests) -> None:
    other = guests()
    writer = other.writer("orders")
    writer.put(b"")
    other.close()
    for call in (lambda: writer.put(b""), lambda: other.writer("orders"), other.topics):
        with pytest.raises(rocketstore.StoreClosedError):
            call()
    assert guest.writer("orders").put(b"").queue_offset == 1


def test_a_guest_that_must_not_be_host_waits_for_one(root: Path) -> None:
    """Nobody holds the store: the error says so, and nothing was made."""
    with pytest.raises(rocketstore.StoreLockedError, match="shared"):
        rocketstore.open(root, shared="guest", wait_s=0, **SMALL)


@pytest.mark.parametrize("given", [{"mode": "r"}, {"untrusted": True}])
def test_what_a_shared_store_cannot_be(root: Path, given: dict[str, object]) -> None:
    with pytest.raises(rocketstore.ConfigError, match="shared"):
        rocketstore.open(root, shared=True, **given)  # type: ignore[arg-type]
