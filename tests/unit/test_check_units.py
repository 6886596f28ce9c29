"""Holding queue units against their records (format 15.2, equation 9)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rocketstore._native.format import codec
from rocketstore.errors import CorruptRecordError
from tests.unit.unit_queue import PRE_BLANK, UNIT, Queue

#: The greatest address of an extension unit.
ADDRESS = -(1 << 31) - 1


def test_units_that_agree_are_counted(queue: Queue) -> None:
    assert len(queue.segments) > 1
    assert queue.check() == (60, 60, 0, queue.units[0][0], queue.units[-1][0])
    assert queue.check(7, 2) == (2, 2, 0, queue.units[7][0], queue.units[8][0])
    assert queue.check(7, 0) == (0, 0, 0, -1, -1)


def test_pre_blanks_are_counted_and_have_no_offset() -> None:
    queue = Queue(20)
    for number in (0, 1, 19):
        queue.put_unit(number, PRE_BLANK)
    assert queue.check() == (17, 17, 3, queue.units[2][0], queue.units[18][0])
    assert queue.check(0, 2) == (0, 0, 2, -1, -1)


def test_units_of_expired_records_only_have_to_rise(queue: Queue) -> None:
    minimum = queue.segments[1].start_offset
    queue.segments = queue.segments[1:]
    alive = sum(unit[0] >= minimum for unit in queue.units)
    checked = queue.check(log_minimum=minimum)
    assert checked == (alive, alive, 0, queue.units[0][0], queue.units[-1][0])
    queue.put_unit(1, queue.units[0])
    with pytest.raises(CorruptRecordError):
        queue.check(log_minimum=minimum)


def test_units_that_do_not_rise_are_told() -> None:
    queue = Queue(0)
    listed = {"INNER_MULTI_DISPATCH": "orders", "INNER_MULTI_QUEUE_OFFSET": "1"}
    queue.add(properties=codec.encode_properties({**listed, "TAGS": "a"}))
    queue.put_unit(1, queue.units[0])
    assert queue.check(1, 1)[0] == 1, "by itself it agrees: the record is listed there"
    with pytest.raises(CorruptRecordError) as caught:
        queue.check()
    assert caught.value.physical_offset == queue.units[0][0]


@pytest.mark.parametrize("code", [0, 1, codec.tags_code("c"), ADDRESS, ADDRESS - 7])
def test_tags_codes_are_those_of_the_records(code: int) -> None:
    queue = Queue(20)
    offset, size, _ = queue.units[7]
    queue.put_unit(7, (offset, size, code))
    with pytest.raises(CorruptRecordError) as caught:
        queue.check()
    assert caught.value.physical_offset == offset


def test_tags_codes_of_delayed_messages_are_times() -> None:
    queue = Queue(20)
    offset, size, _ = queue.units[7]
    queue.put_unit(7, (offset, size, 1_700_000_000_000))
    assert queue.check(tags=False)[0] == 20
    queue.put_unit(7, (offset, size, ADDRESS))
    with pytest.raises(CorruptRecordError):
        queue.check(tags=False)


def test_records_of_other_queues_agree_but_are_not_their_own() -> None:
    queue = Queue(0)
    listed = {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "0"}
    queue.add(properties=codec.encode_properties({**listed, "TAGS": "a"}))
    assert queue.check(topic=b"%LMQ%x", queue_id=0)[:2] == (1, 0)
    assert queue.check()[:2] == (1, 1)


@pytest.mark.parametrize(
    "change", [{"topic": b"other"}, {"queue_id": 4}, {"first_queue_offset": 1}]
)
def test_another_queue_is_told(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptRecordError, match="unit"):
        Queue(20).check(**change)


def test_any_unit_agrees_as_a_reader_would_find_it(rng: random.Random) -> None:
    """What a check calls sound can be read, message by message, as it was."""
    queue = Queue(40)
    good = list(queue.units)
    told = 0
    for _ in range(2000):
        number, at = rng.randrange(40), rng.randrange(UNIT)
        queue.file.write(number * UNIT + at, rng.randbytes(min(rng.choice((1, 4)), UNIT - at)))
        unit = queue.file.read(number * UNIT, UNIT)
        try:
            checked = queue.check()
        except CorruptRecordError:
            told += 1
        else:
            same = [(m.physical_offset, m.size, m.tags_code) for m in queue.read()]
            assert checked[0] == len(same)
            assert same == [g for n, g in enumerate(good) if n != number or checked[2] == 0]
            assert unit == queue.file.read(number * UNIT, UNIT)
        queue.put_unit(number, good[number])
    assert told > 1500
