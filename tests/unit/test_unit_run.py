"""Following queue units batch by batch, where one look has found many of them to be readable."""

from __future__ import annotations

import sys
from operator import length_hint

import pytest

from rocketstore._native.format.queue_reader import UnitRun
from rocketstore.errors import CorruptRecordError, StoreClosedError
from tests.unit.unit_queue import PRE_BLANK, SEGMENT, Queue


def drained(run: UnitRun, queue: Queue, limit: int) -> list[list[int]]:
    """Queue offsets of each batch, to the end."""
    batches = []
    while run.fetch(limit, tuple(queue.segments)):
        batches.append([message.queue_offset for message in run])
    return batches


@pytest.mark.parametrize("limit", [1, 7, 60, 1000])
def test_batches_end_with_the_limit_and_with_a_segment(limit: int, queue: Queue) -> None:
    run = queue.run()
    batches = drained(run, queue, limit)
    assert [number for batch in batches for number in batch] == list(range(60))
    assert run.next_offset == 60
    assert max(map(len, batches)) <= limit
    segments = {queue.units[batch[0]][0] // SEGMENT for batch in batches}
    assert len(segments) == len(queue.segments)
    for batch in batches:
        assert len({queue.units[n][0] // SEGMENT for n in batch}) == 1


def test_messages_are_those_of_a_read(queue: Queue) -> None:
    run = queue.run(5, 30)
    found = []
    while run.fetch(8, tuple(queue.segments)):
        found += list(run)
    assert found == queue.read(5, 30)


def test_what_waits_can_be_looked_at_without_being_handed_out(queue: Queue) -> None:
    run = queue.run()
    assert run.peek() is None
    assert run.waiting() == []
    assert run.fetch(4, tuple(queue.segments)) == length_hint(run) == 4
    assert next(run).queue_offset == 0
    peeked = run.peek()
    assert peeked is not None
    assert peeked.queue_offset == 1
    assert [m.queue_offset for m in run.waiting()] == [1, 2, 3] == [m.queue_offset for m in run]
    assert next(run, None) is None
    assert length_hint(run) == 0


def test_another_batch_drops_what_waits(queue: Queue) -> None:
    run = queue.run()
    run.fetch(4, tuple(queue.segments))
    run.fetch(4, tuple(queue.segments))
    assert [m.queue_offset for m in run] == [4, 5, 6, 7]


def test_what_lies_in_front_of_a_fault_comes_first(queue: Queue) -> None:
    queue.put_unit(3, (*queue.units[4][:2], 0))
    run = queue.run()
    assert run.fetch(10, tuple(queue.segments)) == 3
    assert run.next_offset == 3
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            run.fetch(10, tuple(queue.segments))
        assert list(run) == []
        assert run.next_offset == 3


def test_units_without_a_record_are_passed_over(queue: Queue) -> None:
    for number in range(10):
        queue.put_unit(number, PRE_BLANK)
    run = queue.run()
    assert run.fetch(10, tuple(queue.segments)) == 0
    assert run.next_offset == 10
    assert run.fetch(2, tuple(queue.segments)) == 2
    assert next(run).queue_offset == 10


def test_it_keeps_no_file_of_the_log(queue: Queue) -> None:
    """One that was trimmed away gives its room on the disk back, however long a consumer rests."""
    run = queue.run()
    segments = tuple(queue.segments)
    before = [sys.getrefcount(segment) for segment in segments]
    assert run.fetch(4, segments) == 4
    assert [sys.getrefcount(segment) for segment in segments] == before
    with pytest.raises(CorruptRecordError):
        run.fetch(4, ())
    assert list(run) == []


def test_a_queue_file_that_is_closed_is_an_error(queue: Queue) -> None:
    run = queue.run()
    queue.file.close()
    with pytest.raises(StoreClosedError):
        run.fetch(4, tuple(queue.segments))


def test_an_empty_run(queue: Queue) -> None:
    run = queue.run(60, 0)
    assert run.fetch(4, tuple(queue.segments)) == 0
    assert run.fetch(0, tuple(queue.segments)) == 0
