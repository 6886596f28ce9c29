"""Puts that say when consumers see the message: what each face takes and refuses."""

from __future__ import annotations

import asyncio
import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest

import rocketstore.aio
from rocketstore import NewMessage, Store, Writer
from rocketstore.errors import MessageRejectedError
from rocketstore.testing import ManualClock
from tests.support.small_store import SMALL, open_small
from tests.support.waiting import wait_until

NOW_MS = 1_800_000_000_000
DUE = datetime.datetime.fromtimestamp(NOW_MS / 1000 + 5, datetime.UTC)
AFTER = datetime.timedelta(seconds=5)
TOPIC = "rmq_sys_wheel_timer"
FACES: dict[str, Any] = {
    "put": lambda store, **when: store.writer("orders", queue_id=1).put(b"x", **when),
    "submit": lambda store, **when: (
        store.writer("orders", queue_id=1).submit(b"x", **when).result()
    ),
    "put_message": lambda store, **when: store.put_message("orders", b"x", queue_id=1, **when),
    "put_batch": lambda store, **when: store.put_batch([NewMessage("orders", b"x", 1, **when)]),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


def bodies(store: Store, queue_id: int = 1) -> list[bytes]:
    return [message.body for message in store.consumer("orders", queue_id=queue_id)]


@pytest.mark.parametrize("when", [{"deliver_at": DUE}, {"deliver_after": AFTER}], ids=str)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.store("clock")
def test_each_face_takes_a_time(
    clock: ManualClock, face: str, when: dict[str, Any], store: Store
) -> None:
    FACES[face](store, **when)
    (waiting,) = store.delayed
    assert (waiting.topic, waiting.queue_id, waiting.due_time) == ("orders", 1, DUE)
    assert bodies(store) == []
    clock.advance(5)
    wait_until(lambda: bodies(store) == [b"x"])


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("when", "error"),
    [
        ({"deliver_at": DUE, "deliver_after": AFTER}, MessageRejectedError),
        ({"deliver_at": DUE, "delay_level": 0}, MessageRejectedError),
        ({"deliver_at": datetime.datetime(2030, 1, 1)}, ValueError),
        ({"deliver_at": 1.5}, TypeError),
        ({"deliver_after": "5"}, TypeError),
        ({"deliver_after": float("nan")}, ValueError),
        ({"deliver_after": 1e300}, ValueError),
        ({"deliver_at": 1 << 63}, ValueError),
        ({"deliver_at": 253_402_300_800_000}, MessageRejectedError),
        ({"deliver_after": datetime.timedelta.max}, MessageRejectedError),
    ],
    ids=str,
)
@pytest.mark.store("clock")
def test_what_is_no_time_is_refused(
    clock: ManualClock, face: str, when: dict[str, Any], error: type[Exception], store: Store
) -> None:
    with pytest.raises(error):
        FACES[face](store, **when)
    assert store.end_offset == 0


@pytest.mark.store("clock")
def test_a_time_and_a_place_exclude_each_other(clock: ManualClock, store: Store) -> None:
    condition = {"expected_queue_offset": 0}
    with pytest.raises(MessageRejectedError, match="deliver_at"):
        store.writer("orders").put(b"x", deliver_at=DUE, **condition)
    store.writer("orders").put(b"now", deliver_at=5, **condition)
    assert bodies(store, 0) == [b"now"]


@pytest.mark.store("clock")
def test_half_messages_and_system_topics_have_no_time(clock: ManualClock, store: Store) -> None:
    for topic, sys_flag in (("orders", 4), (TOPIC, 0), ("SCHEDULE_TOPIC_XXXX", 0)):
        with pytest.raises(MessageRejectedError, match="cannot be delayed"):
            store.put_message(topic, b"x", sys_flag=sys_flag, deliver_at=DUE)


@pytest.mark.store("clock")
def test_the_properties_of_times_are_reserved(
    clock: ManualClock, store: Store, writer: Writer
) -> None:
    with pytest.raises(MessageRejectedError, match="deliver_at="):
        writer.put(b"x", properties={"TIMER_DELIVER_MS": "5"})


@pytest.mark.store("clock")
def test_an_id_of_its_own_is_kept(clock: ManualClock, store: Store) -> None:
    writer = store.writer("orders", properties={"UNIQ_KEY": "of the writer"})
    writer.put(b"a", deliver_at=DUE)
    store.writer("orders").put(b"b", deliver_at=DUE, properties={"k": "v", "UNIQ_KEY": "own"})
    store.writer("orders").put(b"c", deliver_at=DUE)
    ids = [waiting.unique_id for waiting in store.delayed]
    assert ids[:2] == ["of the writer", "own"]
    assert ids[2] is not None
    assert len(ids[2]) == 32


def test_new_messages_with_times_are_pickled() -> None:
    message = NewMessage("orders", b"x", deliver_at=DUE)
    assert pickle.loads(pickle.dumps(message)) == message


def test_tasks_put_with_a_time(tmp_path: Path, clock: ManualClock) -> None:
    async def main() -> None:
        async with await rocketstore.aio.open(tmp_path, clock=clock, **SMALL) as store:
            writer = store.writer("orders", queue_id=1)
            await writer.put(b"a", deliver_at=DUE)
            await (await writer.submit(b"b", deliver_after=AFTER))
            await writer.put(b"c", deliver_at=5)

    asyncio.run(main())
    with open_small(tmp_path, clock=clock) as store:
        assert bodies(store) == [b"c"]
        assert [waiting.message.body for waiting in store.delayed] == [b"a", b"b"]
