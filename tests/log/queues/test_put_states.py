"""Next queue offsets and the queues that a message is listed in."""

from __future__ import annotations

import gc
import itertools
import threading

import pytest

from rocketstore import InvalidTopicError, MessageRejectedError
from rocketstore._native.sync.queue_positions import QueueState
from rocketstore.log.queues.put_states import PutStates


@pytest.fixture
def queues() -> PutStates:
    """Each begins at 0."""
    return PutStates(lambda topic, queue_id: 0, wide_topics=False)


def test_next_offset_is_asked_once() -> None:
    asked: list[tuple[str, int]] = []

    def next_offset(topic: str, queue_id: int) -> int:
        asked.append((topic, queue_id))
        return 7

    queues = PutStates(next_offset, wide_topics=False)
    assert queues.state("t", 3).next_offset == 7
    assert queues.state("t", 3) is queues.state("t", 3)
    assert asked == [("t", 3)]
    assert queues.state("t", 4) is not queues.state("t", 3)


def test_one_state_for_all_threads(small_switch_interval: None, queues: PutStates) -> None:
    barrier = threading.Barrier(8)
    found: list[int] = []

    def ask() -> None:
        barrier.wait(20)
        found.append(id(queues.state("t", 0)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize(("wide", "limit"), [(False, 127), (True, 255)])
def test_topic_length(wide: bool, limit: int) -> None:
    queues = PutStates(lambda topic, queue_id: 0, wide_topics=wide)
    assert queues.check_topic("t" * limit) == b"t" * limit
    with pytest.raises(InvalidTopicError):
        queues.check_topic("t" * (limit + 1))


@pytest.mark.parametrize("topic", ["%RETRY%group", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
def test_topics_that_are_never_listed(topic: str, queues: PutStates) -> None:
    assert queues.listed(topic, 0, {"INNER_MULTI_DISPATCH": "%LMQ%a"}, light=True) == []


def test_light_names_go_to_queue_0(queues: PutStates) -> None:
    states = queues.listed("t", 5, {"INNER_MULTI_DISPATCH": "%LMQ%a,plain"}, light=True)
    assert [(s.topic, s.queue_id) for s in states] == [("%LMQ%a", 0), ("plain", 5)]
    with pytest.raises(MessageRejectedError):
        queues.listed("t", 5, {"INNER_MULTI_DISPATCH": "%LMQ%a"}, light=False)


def test_light_queues_of_puts_that_have_not_ended_count() -> None:
    """Two puts for the last place: the first has it until it has failed."""
    queues = PutStates(lambda topic, queue_id: 0, wide_topics=False, max_light_queues=1)

    def listed(name: str) -> list[QueueState]:
        return queues.listed("t", 0, {"INNER_MULTI_DISPATCH": name}, light=True)

    first, again = listed("%LMQ%a"), listed("%LMQ%a")
    queues.settle(first)
    with pytest.raises(MessageRejectedError, match="there are 1 already"):
        listed("%LMQ%b")
    queues.settle(again)
    assert [state.topic for state in listed("%LMQ%b")] == ["%LMQ%b"]


def test_totals_of_a_topic(queues: PutStates) -> None:
    for queue_id in range(3):
        queues.state("t", queue_id)
    assert queues.totals() == {"t": (0, 0)}


def test_totals_while_queues_come_to_be(queues: PutStates) -> None:
    """The collector may come wherever an object is made. Those that it ends may let another thread run."""
    numbers = itertools.count()

    def another(*_: object) -> None:
        queues.state("t", next(numbers))

    for _ in range(1000):
        another()
    before = gc.get_threshold()
    gc.callbacks.append(another)
    gc.set_threshold(50)
    try:
        assert queues.totals() == {"t": (0, 0)}
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(another)
