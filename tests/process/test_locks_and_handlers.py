"""Signal handlers that come while their own thread holds a lock: none waits for itself, nothing is lost (K-01)."""

from __future__ import annotations

import pytest

from rocketstore.services import histogram, statistics
from tests.striking import at_each_line

pytestmark = pytest.mark.timeout(20)


def test_latencies_that_a_handler_counts_too() -> None:
    """A put of a handler is sampled while a put of its thread is."""
    counted = histogram.LatencyHistogram()
    lines = at_each_line(histogram, lambda: counted.record(5), lambda: counted.record(9))
    assert lines > 4
    found = counted.summary()
    assert (found.count, found.max_ns) == (lines + 1 + lines, 9)
    assert at_each_line(histogram, counted.summary, lambda: counted.record(12)) > 4
    assert counted.summary().max_ns == 12


def test_statistics_that_a_handler_asks_for() -> None:
    now_ms = 0

    def work() -> None:
        nonlocal now_ms
        now_ms += statistics.ROTATION_MS  # each time the minute is over
        seen.record_get(1, 7_000_000)
        seen.record_get(0)
        seen.record_put(2_000_000)
        seen.record_put_failed()

    def handle() -> None:
        seen.record_get(1, 9_000_000)
        seen.record_put(3_000_000)
        seen.snapshot()

    seen = statistics.StoreStatistics(dict, clock_ms=lambda: now_ms)
    lines = at_each_line(statistics, work, handle)
    assert lines > 15
    found = seen.snapshot()
    assert found.get_found == found.put_latency.count == 2 * lines + 1
    assert found.get_miss == found.put_failed == lines + 1
    assert (found.put_entire_time_max_ms, found.get_entire_time_max_ms) == (3, 9)
    assert seen._minute_began_ms == now_ms
