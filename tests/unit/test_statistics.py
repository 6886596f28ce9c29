"""Counters, rates and percentiles of a store."""

from __future__ import annotations

import random
import threading

import pytest

from rocketstore._native.sync.durations import Durations
from rocketstore.stats.histogram import (
    PERCENTILE_BUCKETS,
    PUT_TIME_BOUNDS_NS,
    PUT_TIME_LABELS,
    Latency,
    LatencyHistogram,
    PutTimes,
    bucket_limit,
    bucket_of,
)
from rocketstore.stats.statistics import (
    SAMPLES_MAX,
    Rates,
    StoreStatistics,
    TopicTotals,
    runtime_info,
)

MS = 1_000_000


class Fake:
    """A clock and an appender whose numbers the test turns."""

    def __init__(self) -> None:
        self.now_ms = 5_000_000
        self.topics: dict[str, tuple[int, int]] = {}
        self.put_times = Durations(PUT_TIME_BOUNDS_NS)
        self.statistics = StoreStatistics(
            lambda: self.topics, put_times=self.put_times.take, clock_ms=lambda: self.now_ms
        )

    def put(self, duration_ns: int) -> None:
        self.put_times.add(duration_ns)

    def second(self) -> None:
        self.now_ms += 1000
        self.statistics.sample()


@pytest.fixture
def fake() -> Fake:
    return Fake()


def test_a_snapshot_before_the_first_sample_works(fake: Fake) -> None:
    """K-82: zeros are numbers, and nothing divides by them."""
    now = fake.statistics.snapshot()
    assert now.put_messages == 0
    assert now.put_average_bytes == 0.0
    assert now.put_rates == now.get_total_rates == Rates(0.0, 0.0, 0.0)
    assert now.put_p99_ms is None and now.put_p999_ms is None
    assert now.put_latency == Latency(0, None, None, None, None, None)
    assert runtime_info(now)["putMessageTimesTotal"] == "0"


def test_totals_come_from_the_appender_per_topic(fake: Fake) -> None:
    """S000-41 S000-42 S003-34: messages and bytes put, for each topic."""
    fake.topics = {"a": (3, 300), "b": (1, 50)}
    now = fake.statistics.snapshot()
    assert now.topics == {"a": TopicTotals(3, 300), "b": TopicTotals(1, 50)}
    assert (now.put_messages, now.put_bytes) == (4, 350)
    assert now.put_average_bytes == 87.5


def test_gets_count_found_miss_and_transferred(fake: Fake) -> None:
    fake.statistics.record_get(32, duration_ns=7 * MS)
    fake.statistics.record_get(1)
    fake.statistics.record_get(0, duration_ns=3 * MS)
    now = fake.statistics.snapshot()
    assert (now.get_found, now.get_miss, now.transferred_messages) == (2, 1, 33)
    assert now.get_entire_time_max_ms == 7


def test_failed_puts_are_counted(fake: Fake) -> None:
    """S003-24: puts that reached the log and were not stored."""
    fake.statistics.record_put_failed()
    fake.statistics.record_put_failed()
    assert fake.statistics.snapshot().put_failed == 2


def test_rates_over_three_windows(fake: Fake) -> None:
    """Rising by 1, 2, 3 … a second: each window sees its own stretch."""
    total = 0
    for second in range(1, 701):
        total += second
        fake.topics = {"a": (total, 0)}
        fake.second()
    rates = fake.statistics.snapshot().put_rates

    def mean(window: int) -> float:
        # Between the newest sample and the one `window` samples before it.
        return sum(range(700 - window + 2, 701)) / (window - 1)

    assert rates == Rates(mean(10), mean(60), mean(600))


def test_rates_over_less_than_a_window_use_what_there_is(fake: Fake) -> None:
    fake.topics = {"a": (100, 0)}
    fake.second()
    fake.topics = {"a": (300, 0)}
    fake.second()
    assert fake.statistics.snapshot().put_rates == Rates(150.0, 150.0, 150.0)


def test_a_rate_is_not_extrapolated_from_milliseconds(fake: Fake) -> None:
    """10 messages within 26 ms are 10 of the last second, not 384.6 a second."""
    fake.topics = {"a": (10, 0)}
    fake.now_ms += 26
    assert fake.statistics.snapshot().put_rates == Rates(10.0, 10.0, 10.0)
    fake.now_ms += 1974
    assert fake.statistics.snapshot().put_rates == Rates(5.0, 5.0, 5.0)


def test_total_rate_is_found_and_miss(fake: Fake) -> None:
    fake.statistics.record_get(5)
    fake.statistics.record_get(0)
    fake.statistics.record_get(0)
    fake.second()
    now = fake.statistics.snapshot()
    assert now.get_found_rates.over_10_s == 1.0
    assert now.get_miss_rates.over_10_s == 2.0
    assert now.get_total_rates.over_10_s == 3.0
    assert now.transferred_rates.over_10_s == 5.0


def test_history_is_bounded(fake: Fake) -> None:
    for _ in range(SAMPLES_MAX + 50):
        fake.second()
    assert len(fake.statistics._samples) == SAMPLES_MAX == 601


def test_samples_that_come_too_often_are_dropped(fake: Fake) -> None:
    fake.second()
    for _ in range(100):
        fake.statistics.sample()
    assert len(fake.statistics._samples) == 2


@pytest.mark.parametrize(
    ("duration_ms", "label"),
    [
        (0, "[<=0ms]"),
        (1, "[0~10ms]"),
        (9, "[0~10ms]"),
        (10, "[10~50ms]"),
        (50, "[50~100ms]"),
        (100, "[100~200ms]"),
        (200, "[200~500ms]"),
        (499, "[200~500ms]"),
        (500, "[500ms~1s]"),
        (1000, "[1~2s]"),
        (2000, "[2~3s]"),
        (3000, "[3~4s]"),
        (4000, "[4~5s]"),
        (5000, "[5~10s]"),
        (9999, "[5~10s]"),
        (10_000, "[10s~]"),
    ],
)
def test_put_times_fall_into_rocketmqs_buckets(fake: Fake, duration_ms: int, label: str) -> None:
    """S003-23: the time of a whole put feeds the statistics."""
    fake.put(duration_ms * MS)
    distribution = fake.statistics.snapshot().put_distribution
    assert list(distribution) == list(PUT_TIME_LABELS)
    assert {name for name, count in distribution.items() if count} == {label}


def test_readers_see_the_last_full_minute(fake: Fake) -> None:
    fake.put(20 * MS)
    fake.now_ms += 60_000
    fake.statistics.sample()
    fake.put(0)
    now = fake.statistics.snapshot()
    assert (now.put_distribution["[10~50ms]"], now.put_distribution["[<=0ms]"]) == (1, 0)
    fake.now_ms += 60_000
    assert fake.statistics.snapshot().put_distribution["[<=0ms]"] == 1
    fake.now_ms += 180_000
    assert sum(fake.statistics.snapshot().put_distribution.values()) == 0


def test_percentiles_are_linear_within_a_bucket() -> None:
    assert PERCENTILE_BUCKETS == 76
    times = PutTimes()
    times.add([(1 * MS, 98), (55 * MS, 2)], 55 * MS)
    assert times.percentile_ms(0.49) == 0.5  # half of the way through 0 … 1
    assert times.percentile_ms(0.99) == 50 + 5 * 0.5
    assert times.percentile_ms(1.0) == 55.0


def test_percentiles_of_very_slow_puts_end_at_the_slowest() -> None:
    times = PutTimes()
    times.add([(30_000 * MS, 1)], 30_000 * MS)
    assert times.percentile_ms(1.0) == 30_000.0
    assert 10_000 < times.percentile_ms(0.5) < 30_000


def test_histogram_buckets_are_narrow_and_in_order(rng: random.Random) -> None:
    limits = [bucket_limit(bucket) for bucket in range(590)]
    assert limits == sorted(set(limits))
    for _ in range(2000):
        value = rng.getrandbits(rng.randrange(1, 40))
        limit = bucket_limit(bucket_of(value))
        assert value <= limit <= value + value / 16
        assert bucket_of(limit) == bucket_of(value)
        assert bucket_of(limit + 1) == bucket_of(value) + 1


def test_histogram_percentiles() -> None:
    histogram = LatencyHistogram()
    for value in range(1, 1001):
        histogram.record(value * 1000)
    summary = histogram.summary()
    assert (summary.count, summary.max_ns) == (1000, 1_000_000)
    assert summary.mean_ns == 500_500.0
    assert 500_000 <= summary.p50_ns <= 500_000 * 17 / 16
    assert 990_000 <= summary.p99_ns <= 1_000_000
    assert 999_000 <= summary.p999_ns <= 1_000_000


def test_histogram_takes_any_duration() -> None:
    histogram = LatencyHistogram()
    histogram.record(0)
    histogram.record(2**60)
    summary = histogram.summary()
    assert (summary.p50_ns, summary.p99_ns, summary.max_ns) == (0, 2**60, 2**60)


def test_put_and_flush_latencies_are_apart(fake: Fake) -> None:
    fake.put(50)
    fake.statistics.record_flush(150_000)
    now = fake.statistics.snapshot()
    assert (now.put_latency.count, now.put_latency.max_ns) == (1, 50)
    assert (now.flush_latency.count, now.flush_latency.max_ns) == (1, 150_000)


def test_runtime_info_has_rocketmqs_keys(fake: Fake) -> None:
    fake.topics = {"a": (2, 200)}
    fake.put(3 * MS)
    fake.now_ms += (86_400 + 2 * 3600 + 3 * 60 + 4) * 1000
    info = runtime_info(fake.statistics.snapshot(), {"commitLogMinOffset": 0})
    assert set(info) == {
        "bootTimestamp", "runtime", "putMessageEntireTimeMax", "putMessageTimesTotal",
        "putMessageFailedTimes", "putMessageSizeTotal", "putMessageDistributeTime",
        "putMessageAverageSize", "dispatchMaxBuffer", "getMessageEntireTimeMax", "putTps",
        "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps", "putLatency99",
        "putLatency999", "commitLogMinOffset",
    }  # fmt: skip
    assert info["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert info["putMessageEntireTimeMax"] == "3"
    assert info["putMessageAverageSize"] == "100.0"
    assert len(info["putTps"].split()) == 3
    assert all(isinstance(value, str) for value in info.values())


def test_counted_durations_fall_into_the_same_buckets(rng: random.Random) -> None:
    """What the log counts between bounds, beside each duration by itself."""
    durations = [*(n * MS + d for n in (0, 1, 9, 10, 20, 21, 50, 9999, 10_000) for d in (-1, 0, 1))]
    durations += [rng.getrandbits(rng.randrange(1, 44)) for _ in range(2000)]
    counted, alone, together = Durations(PUT_TIME_BOUNDS_NS), PutTimes(), PutTimes()
    one, many = LatencyHistogram(), LatencyHistogram()
    for duration in map(abs, durations):
        counted.add(duration)
        one.record(duration)
        alone.add([(duration, 1)], duration)
    taken, sum_ns, longest = counted.take()
    many.add(taken, sum_ns, longest)
    together.add(taken, longest)
    assert many.summary() == one.summary()
    assert together.distribution == alone.distribution
    assert together.percentiles == alone.percentiles
    assert together.percentile_ms(0.999) == alone.percentile_ms(0.999)
    assert counted.take() == ([], 0, 0)


def test_counting_from_many_threads_loses_nothing(fake: Fake) -> None:
    def work() -> None:
        for _ in range(2000):
            fake.put(MS)
            fake.statistics.record_get(2)
            fake.statistics.record_put_failed()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = fake.statistics.snapshot()
    assert now.put_latency.count == now.put_failed == now.get_found == 8000
    assert now.transferred_messages == 16_000
    assert sum(now.put_distribution.values()) == 8000


def test_many_topics_fit_one_line() -> None:
    """The text of a store with 300 topics had 18 KB."""
    topics = {f"topic-{number}": (number, 10 * number) for number in range(300)}
    found = StoreStatistics(lambda: topics).snapshot()
    assert len(repr(found)) < 250
    assert "put_messages=44850, put_bytes=448500" in repr(found)
    assert repr(found).endswith("300 topics)")


def test_a_latency_shows_milliseconds() -> None:
    histogram = LatencyHistogram()
    assert repr(histogram.summary()) == "Latency(count=0)"
    histogram.record(1_500_000)
    assert repr(histogram.summary()).startswith("Latency(count=1, mean=1.500 ms, p50=1.")
