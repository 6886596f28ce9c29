"""Which offset belongs to a time: exact bounds, and where they differ from RocketMQ's."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import pytest

from rocketstore.log.read.time_search import breaks_of, offset_at
from tests.support.paths import VECTORS

CASES = VECTORS / "vectors.json"


@dataclass
class Queue:
    """A queue as the search sees it: store times by queue offset, None where no record stands."""

    times: list[int | None]
    min_offset: int = 0
    looked_at: int = 0

    @property
    def max_offset(self) -> int:
        return self.min_offset + len(self.times)

    def store_time(self, from_offset: int, to_offset: int) -> tuple[int, int] | None:
        assert self.min_offset <= from_offset < to_offset <= self.max_offset
        for offset in range(from_offset, to_offset):
            self.looked_at += 1
            time_ms = self.times[offset - self.min_offset]
            if time_ms is not None:
                return offset, time_ms
        return None

    def lower(self, when_ms: int) -> int:
        return offset_at(self, when_ms, self.store_time, boundary="lower")

    def upper(self, when_ms: int) -> int:
        return offset_at(self, when_ms, self.store_time, boundary="upper")


def vector() -> tuple[list[int | None], list[dict[str, int]]]:
    table = json.loads(CASES.read_text())["time_lookup"]
    return table["store_ms_of_entries"], table["rows"]


ROWS = [pytest.param(row, id=str(row["timestamp"])) for row in vector()[1]]


@pytest.mark.parametrize("row", ROWS)
def test_lower_bound_is_that_of_rocketmq_5(row: dict[str, int]) -> None:
    assert Queue(vector()[0]).lower(row["timestamp"]) == row["lower_5.3.3"]


@pytest.mark.parametrize("row", ROWS)
def test_upper_bound_is_that_of_rocketmq_5_except_before_the_first_message(
    row: dict[str, int],
) -> None:
    """Where every message is younger RocketMQ answers 0, which is *not* in the range; we -1."""
    times = vector()[0]
    first = times[0]
    assert first is not None
    expected = row["upper_5.3.3"] if row["timestamp"] >= first else -1
    assert Queue(times).upper(row["timestamp"]) == expected


@pytest.mark.parametrize("row", ROWS)
def test_rocketmq_4_answers_one_of_both_bounds_or_between(row: dict[str, int]) -> None:
    """4.9 picks some message near the time: never one outside our exact bounds by more than one."""
    queue = Queue(vector()[0])
    lower, upper = queue.lower(row["timestamp"]), queue.upper(row["timestamp"])
    assert min(lower, upper) - 1 <= row["4.9.8"] <= max(lower, upper) + 1


@pytest.mark.parametrize("minimum", [0, 7])
def test_an_empty_queue_has_its_minimum_as_lower_bound(minimum: int) -> None:
    queue = Queue([], min_offset=minimum)
    assert (queue.lower(5), queue.upper(5)) == (minimum, minimum - 1)


def test_units_without_a_record_are_stepped_over() -> None:
    queue = Queue([None, None, 10, None, 20, None, None, None], min_offset=3)
    assert [queue.lower(when) for when in (9, 10, 11, 20, 21)] == [5, 5, 7, 7, 11]
    assert [queue.upper(when) for when in (9, 10, 11, 20, 21)] == [2, 5, 5, 7, 7]


def test_bounds_agree_with_a_plain_search(rng: random.Random) -> None:
    for _ in range(100):
        time_ms = 0
        times: list[int | None] = []
        for _ in range(rng.randrange(0, 40)):
            time_ms += rng.choice((0, 0, 1, 2, 50))
            times.append(None if rng.random() < 0.2 else time_ms)
        queue = Queue(times, min_offset=rng.randrange(0, 5))
        stored = [(queue.min_offset + n, t) for n, t in enumerate(times) if t is not None]
        for when in range(-1, time_ms + 2):
            lower = [n for n, t in stored if t >= when]
            upper = [n for n, t in stored if t <= when]
            assert queue.lower(when) == (lower[0] if lower else queue.max_offset)
            assert queue.upper(when) == (upper[-1] if upper else queue.min_offset - 1)


def test_a_long_queue_is_searched_in_few_steps() -> None:
    queue = Queue(list(range(100_000)))
    assert queue.lower(77_777) == 77_777
    assert queue.looked_at <= 20


def test_a_clock_that_fell_gives_a_place_where_the_times_cross() -> None:
    """Store times can fall where another writer's clock did (D-28); the search still ends."""
    times: list[int | None] = [10, 20, 30, 15, 25, 35]
    queue = Queue(times)
    for when in range(5, 40):
        found = queue.lower(when)
        assert found == 6 or (times[found] or 0) >= when


def test_an_unknown_boundary_is_refused() -> None:
    with pytest.raises(ValueError, match="boundary"):
        offset_at(Queue([1]), 1, Queue([1]).store_time, boundary="middle")  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [True, False])
def test_where_times_fall(rng: random.Random, known: bool) -> None:
    """Nothing that is as young is in front of the lower bound, nothing as old behind the upper one. Without
    being told where times fall, an answer is a place where they cross."""
    for _ in range(300):
        times: list[int | None] = []
        breaks = []
        for _ in range(rng.randrange(1, 6)):
            breaks.append(len(times) + 5)
            part = sorted(rng.randrange(20) for _ in range(rng.randrange(8)))
            times += [time if rng.random() < 0.8 else None for time in part]
        queue = Queue(times, min_offset=5)
        given = breaks if known else []
        for when in range(-1, 22):
            lower = offset_at(queue, when, queue.store_time, boundary="lower", breaks=given)
            upper = offset_at(queue, when, queue.store_time, boundary="upper", breaks=given)
            young = [5 + n for n, time in enumerate(times) if time is not None and time >= when]
            old = [5 + n for n, time in enumerate(times) if time is not None and time <= when]
            if known:
                assert lower == min(young, default=queue.max_offset)
                assert upper == max(old, default=4)
            else:
                assert lower in (*young, queue.max_offset)
                assert upper in (*old, 4)


def test_breaks_of_ranges() -> None:
    """A range of one byte is one place; within a longer one times may fall with each message."""
    queue = Queue([10, 20, None, 30, 40, 50], min_offset=2)
    for ranges, expected in (
        ([(20, 21)], [3]),
        ([(21, 22)], [4]),
        ([(11, 12), (45, 46), (60, 61)], [3, 7, 8]),
        ([(11, 41)], [3, 4, 5, 6]),
        ([(0, 1)], [2]),
    ):
        assert list(breaks_of(queue, ranges, queue.store_time)) == expected
