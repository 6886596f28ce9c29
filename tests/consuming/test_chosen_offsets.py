"""Commits of offsets that the caller chooses, and groups whose queues have consumers of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import GroupClaimedError, OffsetOutOfRangeError, QueueNotFoundError, Store
from tests.support.small_store import SMALL


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with rocketstore.open(tmp_path, **SMALL) as opened:
        for queue_id in range(3):
            opened.writer("t", queue_id=queue_id).put_batch([b"x"] * 4)
        yield opened


def test_a_message_and_all_before_it_are_done(store: Store) -> None:
    with store.consumer("t", group="g") as consumer:
        taken = consumer.poll(12)
        message = next(m for m in taken if (m.queue_id, m.queue_offset) == (1, 2))
        assert consumer.commit(message) == {1: 3}
        assert store.committed("t", "g") == {1: 3}
        assert consumer.positions == {0: 4, 1: 4, 2: 4}
        assert consumer.commit({0: 1, 2: 4}, durability="os") == {0: 1, 2: 4}
        assert store.committed("t", "g") == {0: 1, 1: 3, 2: 4}
        assert consumer.commit() == {0: 4, 1: 4, 2: 4}


@pytest.mark.parametrize(
    ("upto", "error", "text"),
    [
        ({0: 5}, OffsetOutOfRangeError, "5"),
        ({0: 4, 7: 0}, QueueNotFoundError, "no queue 7"),
        ({0: -1}, ValueError, "offset"),
        ({0: True}, TypeError, "offset"),
        ({"0": 1}, TypeError, "queue_id"),
        (3, TypeError, "queue_id: offset"),
    ],
)
def test_what_cannot_be_committed_stores_nothing(
    store: Store, upto: Any, error: type[Exception], text: str
) -> None:
    with store.consumer("t", group="g") as consumer:
        consumer.poll(12)
        with pytest.raises(error, match=text):
            consumer.commit(upto)
        with pytest.raises(ValueError, match="durability"):
            consumer.commit(durability="memory")  # type: ignore[arg-type]
        assert store.committed("t", "g") == {}


def test_a_message_of_another_topic_is_refused(store: Store) -> None:
    store.writer("other").put(b"x")
    with store.consumer("t", group="g") as consumer, pytest.raises(ValueError, match="other"):
        consumer.commit(next(store.consumer("other")))


def test_consumers_of_one_group_live_on_different_queues(store: Store) -> None:
    first = store.consumer("t", group="g", queue_id=0)
    second = store.consumer("t", group="g", queue_id=1)
    with pytest.raises(GroupClaimedError, match=r"one of queue 1, made by thread 'MainThread'"):
        store.consumer("t", group="g", queue_id=1)
    with pytest.raises(GroupClaimedError, match="one of queue 0"):
        store.consumer("t", group="g")
    first.poll(2)
    second.poll(3)
    assert (first.commit(), second.commit()) == ({0: 2}, {1: 3})
    assert store.committed("t", "g") == {0: 2, 1: 3}
    with pytest.raises(QueueNotFoundError):
        first.commit({1: 1})
    second.close()
    store.consumer("t", group="g", queue_id=1).close()
    first.close()
    whole = store.consumer("t", group="g")
    with pytest.raises(GroupClaimedError, match="one of all queues"):
        store.consumer("t", group="g", queue_id=2)
    whole.close()


def test_errors_have_names_of_their_own(store: Store) -> None:
    with pytest.raises(rocketstore.InvalidGroupError, match="group = 'bil@ling'"):
        store.consumer("t", group="bil@ling")
    with pytest.raises(rocketstore.NoGroupError, match="pass group="):
        store.consumer("t").commit()
    with pytest.raises(QueueNotFoundError, match="no topic 'nope'"):
        store.offset_at("nope", 0, 0)
