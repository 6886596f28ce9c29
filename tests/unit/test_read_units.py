"""Following queue units to their records (format 15.2, equation 9)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rocketstore._native.format import codec
from rocketstore._native.format.queue_reader import read_units
from rocketstore._native.format.scanner import Message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from tests.unit.unit_queue import PRE_BLANK, UNIT, Queue


def numbers(messages: list[Message]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_units_lead_to_their_records(queue: Queue) -> None:
    assert len(queue.segments) > 1
    messages = queue.read()
    assert numbers(messages) == list(range(60))
    assert [m.physical_offset for m in messages] == [unit[0] for unit in queue.units]
    assert [m.body for m in messages] == [b"%d" % n * (1 + n % 50) for n in range(60)]


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, 1), (5, 3), (59, 1), (10, 50)])
def test_part_of_a_queue(first: int, count: int) -> None:
    assert numbers(Queue().read(first, count)) == list(range(first, first + count))


def test_many_units_at_once() -> None:
    """More than are followed in one step."""
    queue = Queue(1)
    record = queue.segments[0].read(0, queue.units[0][1])
    file = MappedFile.anonymous(0, 1400 * len(record))
    queue.segments = [file]
    queue.file = MappedFile.anonymous(0, 1400 * UNIT)
    queue.units = []
    queue.end = 0
    for number in range(1300):
        fields = {"queue_offset": number, "physical_offset": queue.end, "body": b"x"}
        data = codec.encode_record(topic="orders", queue_id=3, **fields)  # type: ignore[arg-type]
        file.write(queue.end, data)
        queue.put_unit(number, (queue.end, len(data), 0))
        queue.end += len(data)
    messages = read_units(
        queue.file,
        0,
        1300,
        (file,),
        file.size,
        topic=b"orders",
        queue_id=3,
        first_queue_offset=0,
        log_minimum=0,
        limit_offset=queue.end,
        verify=3,
        tags_codes=None,
    )
    assert numbers(messages) == list(range(1300))


def test_messages_do_not_change_while_others_are_read() -> None:
    """More of them than are kept for the next batch, which is filled with other records."""
    queue = Queue(150)
    first = [message for _ in range(6) for message in queue.read(0, 100)]
    facts = [(m.queue_offset, m.physical_offset, m.size, m.body) for m in first]
    held = first[::2]
    del first
    assert numbers(queue.read(100, 50)) == list(range(100, 150))
    assert [(m.queue_offset, m.physical_offset, m.size, m.body) for m in held] == facts[::2]


def test_pre_blanks_are_passed_over() -> None:
    queue = Queue(20)
    for number in range(5):
        queue.put_unit(number, PRE_BLANK)
    assert numbers(queue.read()) == list(range(5, 20))


def test_units_below_the_minimum_are_passed_over(queue: Queue) -> None:
    minimum = queue.segments[1].start_offset
    queue.segments = queue.segments[1:]
    expected = [n for n, unit in enumerate(queue.units) if unit[0] >= minimum]
    assert numbers(queue.read(log_minimum=minimum)) == expected


def test_tags_are_looked_at_in_the_unit() -> None:
    """Records of other tags are not touched, so damage in them does not matter."""
    queue = Queue(20)
    offset = queue.units[2][0]
    queue.segments[0].write(offset - queue.segments[0].start_offset, bytes(8))
    codes = frozenset({codec.tags_code("b"), 12345, -7})
    assert numbers(queue.read(tags_codes=codes)) == list(range(1, 20, 2))
    assert queue.read(0, 2, tags_codes=frozenset()) == []


def test_segments_may_have_gaps(queue: Queue) -> None:
    lost = queue.segments.pop(1)
    for number, (offset, _, _) in enumerate(queue.units):
        inside = lost.start_offset <= offset < lost.end_offset
        if inside:
            with pytest.raises(CorruptRecordError):
                queue.read(number, 1)
        else:
            assert numbers(queue.read(number, 1)) == [number]


BAD_UNITS = {
    "not written": (0, 0, 0),
    "negative offset": (-1, 100, 0),
    "negative size": (8192, -1, 0),
    "inside a record": (8193, 100, 0),
    "beyond the segments": (1 << 40, 100, 0),
    "before the segments": (10, 100, 0),
}


@pytest.mark.parametrize("name", sorted(BAD_UNITS))
def test_bad_units_are_told(name: str) -> None:
    queue = Queue(20)
    queue.put_unit(7, BAD_UNITS[name])
    with pytest.raises(CorruptRecordError) as caught:
        queue.read(limit_offset=1 << 62)
    assert caught.value.physical_offset == BAD_UNITS[name][0]


def test_size_of_the_unit_has_to_be_that_of_the_record() -> None:
    queue = Queue(20)
    offset, size, code = queue.units[7]
    queue.put_unit(7, (offset, size - 1, code))
    with pytest.raises(CorruptRecordError, match="unit"):
        queue.read()


def test_unit_of_another_record_is_told() -> None:
    """A unit that a cut left behind."""
    queue = Queue(20)
    queue.put_unit(7, queue.units[8])
    with pytest.raises(CorruptRecordError, match="unit"):
        queue.read(7, 1)


@pytest.mark.parametrize(
    "change", [{"topic": b"other"}, {"queue_id": 4}, {"first_queue_offset": 1}]
)
def test_record_of_another_queue_is_told(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptRecordError, match="unit"):
        Queue(20).read(**change)


def test_no_record_beyond_the_limit_is_given() -> None:
    """D-32"""
    queue = Queue(20)
    limit = queue.units[10][0] + queue.units[10][1]
    assert numbers(queue.read(0, 11, limit_offset=limit)) == list(range(11))
    with pytest.raises(CorruptRecordError):
        queue.read(0, 11, limit_offset=limit - 1)


def test_checksums_that_are_asked_for() -> None:
    queue = Queue(20)
    segment = queue.segments[0]
    segment.write(queue.units[7][0] - segment.start_offset + 88, b"!")
    assert len(queue.read(verify=0)) == 20
    with pytest.raises(CorruptRecordError, match="body crc"):
        queue.read(verify=1)


def light(names: str, offsets: str) -> bytes:
    return codec.encode_properties(
        {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    )


@pytest.mark.parametrize(
    ("names", "offsets", "queue_id", "good"),
    [
        ("%LMQ%x", "0", 0, True),
        ("%LMQ%y,%LMQ%x", "9,0", 0, True),
        ("%LMQ%x,%LMQ%y", "9,0", 0, False),
        ("%LMQ%x", "1", 0, False),
        ("%LMQ%x", "0", 3, False),
        ("%LMQ%x", "", 0, False),
        ("%LMQ%xx", "0", 0, False),
        ("%LMQ%y,%LMQ%x", "0", 0, False),
    ],
)
def test_light_queues(names: str, offsets: str, queue_id: int, good: bool) -> None:
    """Format 6.7: the name is in the record's own list, with the number of the unit."""
    queue = Queue(0)
    queue.add(properties=light(names, offsets) if offsets else light(names, ","))
    if good:
        assert len(queue.read(topic=b"%LMQ%x", queue_id=queue_id)) == 1
    else:
        with pytest.raises(CorruptRecordError):
            queue.read(topic=b"%LMQ%x", queue_id=queue_id)


def test_further_queue_that_is_not_light_has_the_records_queue_id() -> None:
    queue = Queue(0)
    queue.add(properties=light("audit", "0"))
    assert len(queue.read(topic=b"audit", queue_id=3)) == 1


def test_units_outside_their_file_are_refused() -> None:
    queue = Queue(5)
    with pytest.raises(ValueError, match="outside"):
        queue.read(149, 2)


def test_any_unit_is_followed_or_told(rng: random.Random) -> None:
    queue = Queue(40)
    good = list(queue.units)
    for _ in range(2000):
        number = rng.randrange(40)
        at = rng.randrange(UNIT)
        queue.file.write(number * UNIT + at, rng.randbytes(min(rng.choice((1, 4)), UNIT - at)))
        try:
            messages = queue.read()
        except CorruptRecordError:
            pass
        else:
            assert set(numbers(messages)) <= set(range(40))
        queue.put_unit(number, good[number])
    assert numbers(queue.read()) == list(range(40))
