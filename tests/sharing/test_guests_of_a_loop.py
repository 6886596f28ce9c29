"""Puts of an event loop whose store another process has: in their order, with one wait, each with its own end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import DurabilityTimeoutError, NewMessage, OutcomeUnknownError, Placed
from tests.process.other_process import SMALL


@asynccontextmanager
async def guest(path: Path, **options: Any) -> AsyncIterator[rocketstore.aio.Store]:
    """Of a host in this process."""
    with rocketstore.open(path, shared="host", **SMALL):
        async with rocketstore.aio.open(path, shared="guest", **options) as store:
            yield store


def test_puts_are_on_the_disk_in_their_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with guest(tmp_path) as store:
            orders = store.writer("orders")
            plain = await asyncio.gather(*(orders.put(b"%d" % n) for n in range(200)))
            once = await asyncio.gather(*(orders.put(b"x", unique_id=f"{n}") for n in range(50)))
            assert [put.queue_offset for put in (*plain, *once)] == list(range(250))
            assert {put.durability for put in (*plain, *once)} == {"disk"}
            again = await asyncio.gather(*(orders.put(b"x", unique_id=f"{n}") for n in range(50)))
            assert [put.queue_offset for put in again] == list(range(200, 250))
            assert all(put.duplicate and put.durability == "disk" for put in again)
            assert store.blocking.flushed_offset >= once[-1].end_offset
            assert store.in_flight == 0

    asyncio.run(main())


def test_every_kind_of_put_and_every_promise(tmp_path: Path) -> None:
    async def main() -> None:
        async with guest(tmp_path) as store:
            orders = store.writer("orders")
            for level in ("disk", "os", "memory"):
                assert (await orders.put(b"x", durability=level)).durability in (level, "disk")
            assert (await (await orders.submit(b"x"))).durability == "disk"
            assert (await orders.put_batch([b"x", b"y"])).durability == "disk"
            assert (await store.put_batch([NewMessage("o", b"x")])).durability == "disk"
            assert (await store.put_message("orders", b"x")).durability == "disk"
            with pytest.raises(rocketstore.QueueOffsetMismatchError):
                await orders.put(b"x", expected_queue_offset=0)
            end = store.end_offset
            assert await store.flush() == end
            await store.wait_flushed(end, timeout_s=60)

    asyncio.run(main())


def test_as_many_wait_as_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    waited = rocketstore.Store.wait_flushed

    async def main() -> None:
        async with guest(tmp_path, max_in_flight=7) as store:

            def noted(self: rocketstore.Store, *words: Any) -> None:
                seen.append(store.in_flight)
                waited(self, *words)

            monkeypatch.setattr(rocketstore.Store, "wait_flushed", noted)
            await asyncio.gather(*(store.writer("orders").put(b"x") for _ in range(100)))

    asyncio.run(main())
    assert 0 < max(seen) <= 7


def test_each_put_fails_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host died before the second one was on its disk; the third was too late, and has its result."""
    waited = rocketstore.Store.wait_flushed
    ends: list[int] = []

    def fails(self: rocketstore.Store, end: int, timeout_s: float | None = None) -> None:
        waited(self, end, timeout_s)
        if (at := ends.index(end)) == 1:
            raise OutcomeUnknownError("the host died")
        if at == 2:
            raise DurabilityTimeoutError("too late")

    async def main() -> None:
        async with guest(tmp_path) as store:
            orders = store.writer("orders")
            ends.append((await orders.put(b"x", durability="memory")).end_offset)
            ends.extend(ends[0] * n for n in (2, 3, 4))  # they are equally long
            monkeypatch.setattr(rocketstore.Store, "wait_flushed", fails)
            puts = [orders.put(b"x") for _ in range(3)]
            found = await asyncio.gather(*puts, return_exceptions=True)
            monkeypatch.undo()
            assert isinstance(found[0], OutcomeUnknownError)
            assert isinstance(found[1], DurabilityTimeoutError)
            assert found[1].result is not None and found[1].result.queue_offset == 2
            assert isinstance(found[2], rocketstore.PutResult)
            assert (await orders.put(b"goes on")).queue_offset == 4

    asyncio.run(main())


def test_a_close_waits_for_what_was_put(tmp_path: Path) -> None:
    async def main() -> list[rocketstore.PutResult]:
        async with guest(tmp_path) as store:
            orders = store.writer("orders")
            await orders.put(b"first")
            puts = [orders.put(b"x") for _ in range(20)]
        return [await put for put in puts]

    assert {put.durability for put in asyncio.run(main())} == {"disk"}


def test_a_port_of_a_guest_says_that_nobody_rings_it(tmp_path: Path) -> None:
    with (
        rocketstore.open(tmp_path, shared="host", **SMALL) as host,
        rocketstore.open(tmp_path, shared="guest") as store,
    ):
        port = rocketstore.CompletionPort(store)
        assert (port.elsewhere, rocketstore.CompletionPort(host).elsewhere) == (True, False)
        writer = store.writer("orders")
        put = (b"x", None, None, None, 0, None, None, None, Future[object]())
        assert port.put(writer, *put) == Placed.NOT_PUT
        port.close()
