"""Services of a store from tasks: what threads call is awaited, and no task waits for another."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Retention
from rocketstore.aio import Store
from rocketstore.testing import ManualClock
from tests.aio.loops import open_small
from tests.support.small_store import SEGMENT

HOUR = datetime.timedelta(hours=1)


async def test_delayed_messages(tmp_path: Path) -> None:
    async with open_small(tmp_path, clock=ManualClock(10**12)) as store:
        for number in range(3):
            await store.writer("t").put(b"%d" % number, deliver_after=HOUR)
        id_ = await store.delayed.repeat("beats", b"", HOUR)
        assert await store.delayed.count("t") == 3 == len(await store.delayed.messages("t"))
        assert [m.unique_id async for m in store.delayed.messages("beats")] == [id_]
        assert await store.delayed.cancel(id_)
        assert await store.delayed.count() == 3 and await store.delayed.get(id_) is None
        first = (await store.delayed.messages())[0]
        assert await store.delayed.reschedule(first, 2 * HOUR)
        due = await store.delayed.next_due_time()
        assert due is not None and due.timestamp() >= 10**9 + 3600
        assert (await store.delayed.undelivered(), await store.delayed.error()) == ([], None)


async def test_retention(tmp_path: Path) -> None:
    rule = Retention(max_bytes=4 * SEGMENT)
    async with open_small(tmp_path, retention=rule) as store:
        for _ in range(40):
            await store.writer("t").put(bytes(1000))
        assert store.retention.rule == rule
        assert (await store.retention.plan()).segments
        await store.retention.run()
        assert store.end_offset - store.begin_offset <= 5 * SEGMENT
        await store.retention.hold("mine", store.end_offset)
        assert await store.retention.holds() == {"mine": store.end_offset}
        assert await store.retention.release("mine")
        assert (store.retention.events, store.retention.last_error) == ((), None)


async def test_transactions_in_the_form_of_rocketmq(tmp_path: Path) -> None:
    async with open_small(tmp_path) as store:
        kept, dropped = [
            await store.transactions.prepare("t", body, group="g") for body in (b"kept", b"no")
        ]
        assert [one.id for one in await store.transactions.open()] == [kept.id, dropped.id]
        await store.transactions.commit(kept.id)
        await store.transactions.rollback(dropped.id)
        assert (await store.transactions.errors(), await store.transactions.open()) == ([], [])
        assert [m.body async for m in store.consumer("t")] == [b"kept"]


async def test_a_compaction(tmp_path: Path) -> None:
    async with open_small(tmp_path / "from") as store:
        writer = store.writer("t")
        for number in range(4):
            await writer.put(b"%d" % number, keys=f"k{number % 2}")
        report = await store.compact("t", into=tmp_path / "into")
        assert report.kept == 2
    async with open_small(tmp_path / "into", "r") as store:
        assert [m.body async for m in store.consumer("t")] == [b"2", b"3"]


@pytest.mark.parametrize("use", [lambda s: s.delayed.count(), lambda s: s.retention.run()])
async def test_a_closed_store_says_so(tmp_path: Path, use: Any) -> None:
    store: Store
    async with open_small(tmp_path) as store:
        pass
    with pytest.raises(Exception, match="closed"):
        await use(store)
