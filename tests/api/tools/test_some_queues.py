"""Consumers of some queues of a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
import rocketstore.aio
from rocketstore import GroupClaimedError, QueueNotFoundError, Store
from tests.aio.loops import run
from tests.support.small_store import open_small

TURNS = 5


def fill(store: rocketstore.Store, queues: int = 4) -> None:
    for number in range(TURNS):
        for queue_id in range(queues):
            store.writer("orders", queue_id=queue_id).put(b"%d/%d" % (queue_id, number))


def test_it_reads_these_queues_and_no_others(store: Store) -> None:
    fill(store)
    consumer = store.consumer("orders", queue_ids=[2, 0, 2])
    found = [message.body for message in consumer]
    assert sorted(found) == sorted(b"%d/%d" % (q, n) for q in (0, 2) for n in range(TURNS))
    for queue_id in (0, 2):
        mine = [body for body in found if body.startswith(b"%d/" % queue_id)]
        assert mine == [b"%d/%d" % (queue_id, n) for n in range(TURNS)]
    assert consumer.positions == {0: TURNS, 2: TURNS}
    assert set(consumer.statuses) == {0, 2}
    assert consumer.lag() == 0
    for queue_id in (1, 2, 3):
        store.writer("orders", queue_id=queue_id).put(b"more")
    assert consumer.lag() == 1
    assert [message.queue_id for message in consumer.poll(timeout_s=5)] == [2]
    assert "queue_ids=[0, 2]" in repr(consumer)


def test_queues_that_come_later_are_taken_up_if_they_are_wanted(store: Store) -> None:
    consumer = store.consumer("orders", queue_ids=np.array([1, 3]))
    assert consumer.poll() == []
    fill(store)
    assert {message.queue_id for message in consumer} == {1, 3}
    latest = store.consumer("orders", queue_ids=(1, 3), offset="latest")
    assert latest.positions == {1: TURNS, 3: TURNS}
    with pytest.raises(QueueNotFoundError):
        store.consumer("orders", queue_ids=[3, 9], must_exist=True)
    store.consumer("orders", queue_ids=[3, 1], must_exist=True).close()


def test_a_seek_moves_one_of_them_or_all(store: Store) -> None:
    fill(store)
    consumer = store.consumer("orders", queue_ids=[0, 2], offset="latest")
    consumer.seek(3, queue_id=2)
    assert consumer.positions == {0: TURNS, 2: 3}
    consumer.seek("earliest")
    assert consumer.positions == {0: 0, 2: 0}
    with pytest.raises(ValueError, match="needs the queue_id"):
        consumer.seek(3)
    with pytest.raises(ValueError, match="has no queue 1"):
        consumer.seek(3, queue_id=1)
    one = store.consumer("orders", queue_ids=[2], offset=4)  # as queue_id=2
    one.seek(3)
    assert one.positions == {2: 3}
    assert "queue_id=2" in repr(one)


def test_consumers_of_a_group_share_the_queues(store: Store) -> None:
    fill(store)
    even = store.consumer("orders", queue_ids=[0, 2], group="billing")
    odd = store.consumer("orders", queue_ids=[1, 3], group="billing")
    for wanted in ({"queue_ids": [2, 5]}, {"queue_id": 0}, {}):
        with pytest.raises(GroupClaimedError, match=r"one of queues \[0, 2\]"):
            store.consumer("orders", group="billing", **wanted)  # type: ignore[arg-type]
    assert len(list(even)) == len(list(odd)) == 2 * TURNS
    assert even.commit() == {0: TURNS, 2: TURNS}
    assert odd.commit({3: 2}) == {3: 2}
    with pytest.raises(QueueNotFoundError):
        odd.commit({2: 1})
    even.close()
    again = store.consumer("orders", queue_ids=[0, 2, 4], group="billing")
    assert again.positions == {0: TURNS, 2: TURNS, 4: 0}
    again.close()
    odd.close()
    rest = store.consumer("orders", group="billing")
    assert rest.positions == {0: TURNS, 1: 0, 2: TURNS, 3: 2}


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"queue_ids": []}, ValueError, "queue_ids has no queue"),
        ({"queue_ids": [0, -1]}, ValueError, "queue_ids = -1"),
        ({"queue_ids": [0, "1"]}, TypeError, "queue_ids = '1'"),
        ({"queue_ids": [True]}, TypeError, "queue_ids = True"),
        ({"queue_ids": 0}, TypeError, "queue_ids = 0: expected several"),
        ({"queue_ids": "02"}, TypeError, "queue_ids = '02': expected several"),
        ({"queue_ids": [0], "queue_id": 0}, ValueError, "not together with queue_id"),
        ({"queue_ids": [0, 1], "offset": 3}, ValueError, "needs the queue_id"),
    ],
)
def test_wrong_queues_are_named(
    wrong: dict[str, Any], error: type[Exception], text: str, store: Store
) -> None:
    fill(store)
    with pytest.raises(error, match=text):
        store.consumer("orders", group="billing", **wrong)
    store.consumer("orders", group="billing").close()  # nothing is claimed


def test_tasks_have_them_too(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        fill(store)

    async def main() -> None:
        async with (
            rocketstore.aio.open(tmp_path) as store,
            store.consumer("orders", queue_ids=[1, 3], group="billing") as consumer,
        ):
            found = [message.queue_id async for message in consumer]
            assert sorted(found) == [1] * TURNS + [3] * TURNS
            assert await consumer.commit() == {1: TURNS, 3: TURNS}
            assert await consumer.lag() == 0

    run(main)
