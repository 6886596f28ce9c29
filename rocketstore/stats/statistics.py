"""Counters, rates and latencies of a store (semantics 14).

The appender counts messages and bytes per queue itself, and times of puts; this module only asks
it when a snapshot is taken, and once a second. So a put costs nothing here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.stats.histogram import (
    PUT_TIME_LABELS,
    Latency,
    LatencyHistogram,
    PutTimes,
)
from rocketstore.values.public import public

__all__ = ["GuestFigures", "Rates", "Statistics", "StoreStatistics", "TopicTotals"]

#: Snapshots that are kept, a count; one a second, enough for a rate over 600 s.
SAMPLES_MAX: Final = 601
SAMPLE_INTERVAL_MS: Final = 1000
RATE_WINDOWS_S: Final = (10, 60, 600)
#: Least age for a rate, seconds; the work of some milliseconds is no rate.
SHORTEST_WINDOW_MS: Final = 1000
#: Time after which a window of put times is closed and shown, seconds.
ROTATION_MS: Final = 60_000


@public
class TopicTotals(NamedTuple):
    """What was appended to one topic since the store was opened."""

    messages: int
    bytes: int


@public
class Rates(NamedTuple):
    """Events a second over the last 10, 60 and 600 s; while the store is younger, over the time
    since it was opened, which counts as one second at least: 10 messages within 26 ms are 10 a
    second."""

    over_10_s: float = 0.0
    over_60_s: float = 0.0
    over_600_s: float = 0.0


@public
class GuestFigures(NamedTuple):
    """A process that shares a store by way of its host, as the host knows it. `docs/several_processes.md`
    says what a guest is."""

    #: As the guest gives it; in another PID name space it may mean nothing here, or another process.
    pid: int
    #: Its command, as the guest gives it.
    name: str
    #: Messages that it had stored since it came, and bytes of what it sent for them.
    puts: int
    bytes: int
    #: Requests that the host has taken and not answered yet.
    in_flight: int
    #: Since its last request, seconds.
    heard_s: float


class _Sample(NamedTuple):
    moment_ms: int
    put: int
    found: int
    miss: int
    transferred: int


@public
@dataclass(frozen=True, slots=True, repr=False)
class Statistics:
    """What a store did since it was opened, in numbers; `runtime_info` has RocketMQ's text form.

    **Times of puts** are taken of every call that has to wait, for the disk or for the write to the
    file: put, put_batch, put_columns, put_frames and put_message, one time a call, from its begin
    until its promise was met or its time was up, and likewise those of `rocketstore.aio`. Of single
    puts that wait for nothing (durability "os" or "memory", and `submit`, whose ticket may be asked
    at any time) they are a sample: the first, second, fourth, eighth … and then every 1,024th of
    each writer. Batches that wait for nothing have none. Without a time, percentiles are None and
    counts 0; `put_entire_time_max_ms` is 0 then, too.
    """

    boot_timestamp_ms: int
    runtime_ms: int
    put_messages: int
    put_bytes: int
    put_failed: int
    get_found: int
    get_miss: int
    transferred_messages: int
    put_entire_time_max_ms: int
    get_entire_time_max_ms: int
    put_rates: Rates
    get_found_rates: Rates
    get_miss_rates: Rates
    get_total_rates: Rates
    transferred_rates: Rates
    #: Put times of the last full minute, or of this one while there is none; labels as RocketMQ's.
    put_distribution: Mapping[str, int]
    #: Percentiles of the same minute; None if it had no puts.
    put_p99_ms: float | None
    put_p999_ms: float | None
    #: Counted since the store was opened.
    put_latency: Latency
    flush_latency: Latency
    topics: Mapping[str, TopicTotals] = field(default_factory=dict)
    #: The process that has the store open for writing; 0 where none is known to have.
    host_pid: int = 0
    #: Other processes that share the store, for the host and its guests; a reader sees none.
    guests: tuple[GuestFigures, ...] = ()

    @property
    def put_average_bytes(self) -> float:
        """Mean size of a stored message; 0.0 before the first."""
        return self.put_bytes / self.put_messages if self.put_messages else 0.0

    def __repr__(self) -> str:
        """In one line, however many topics there are; the fields have the rest."""
        return (
            f"Statistics(runtime_ms={self.runtime_ms}, put_messages={self.put_messages}, "
            f"put_bytes={self.put_bytes}, put_failed={self.put_failed}, "
            f"get_found={self.get_found}, get_miss={self.get_miss}, "
            f"transferred_messages={self.transferred_messages}, "
            f"put_p99_ms={self.put_p99_ms}, {len(self.topics)} topics)"
        )


#: Durations between `PUT_TIME_BOUNDS_NS`: each bound with their number; their sum and the longest,
#: in ns.
PutTimesTaken = tuple[Sequence[tuple[int, int]], int, int]


class StoreStatistics:
    """Collects what `Statistics` shows. All methods may be called from any thread, and by a
    signal's handler inside another one.

    `totals` returns messages and bytes for each topic; it must be cheap enough to be called once a
    second. `put_times` gives the times of puts since its last call. `clock_ms` is monotonic: a
    corrected wall clock must not bend a rate.
    """

    def __init__(
        self,
        totals: Callable[[], Mapping[str, tuple[int, int]]],
        *,
        put_times: Callable[[], PutTimesTaken] = lambda: ((), 0, 0),
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._totals = totals
        self._put_times = put_times
        self._clock_ms = clock_ms
        self._lock = SignalSafeLock("the statistics")
        self._boot_timestamp_ms = time.time_ns() // 1_000_000
        self._boot_ms = clock_ms()
        self._put_failed = 0
        self._found = 0
        self._miss = 0
        self._transferred = 0
        self._put_time_max_ms = 0
        self._get_time_max_ms = 0
        self._put_latency = LatencyHistogram()
        self._flush_latency = LatencyHistogram()
        self._minute = PutTimes()
        self._last_minute: PutTimes | None = None
        self._minute_began_ms = self._boot_ms
        # Rates count from the opening, when all totals were 0.
        self._samples = deque([_Sample(self._boot_ms, 0, 0, 0, 0)], maxlen=SAMPLES_MAX)

    def record_put_failed(self) -> None:
        """One put that reached the log and was not stored; refusals before the log do not count."""
        with self._lock():
            self._put_failed += 1

    def record_get(self, messages: int, duration_ns: int = 0) -> None:
        """One read that gave `messages`; 0 is a miss."""
        duration_ms = duration_ns // 1_000_000
        with self._lock():
            if messages:
                self._found += 1
                self._transferred += messages
            else:
                self._miss += 1
            if duration_ms > self._get_time_max_ms:
                self._get_time_max_ms = duration_ms

    def record_flush(self, duration_ns: int) -> None:
        """How long one sync of the log took."""
        self._flush_latency.record(duration_ns)

    def sample(self) -> None:
        """Keep a snapshot for the rates. To be called once a second; more often does nothing."""
        put = sum(messages for messages, _ in self._totals().values())
        now_ms = self._clock_ms()
        with self._lock():
            self._rotate(now_ms)
            # A worker that wakes a little early must not halve the history.
            if now_ms - self._samples[-1].moment_ms >= SAMPLE_INTERVAL_MS // 2:
                self._samples.append(self._take(now_ms, put))

    def snapshot(self) -> Statistics:
        """All counters as of now. Works before the first sample (K-82)."""
        topics = {topic: TopicTotals(*totals) for topic, totals in self._totals().items()}
        messages = sum(totals.messages for totals in topics.values())
        flush_latency = self._flush_latency.summary()
        now_ms = self._clock_ms()
        with self._lock():
            self._rotate(now_ms)
            put_latency = self._put_latency.summary()
            minute = self._last_minute or self._minute
            now = self._take(now_ms, messages)
            then = [self._sample_before(window_s) for window_s in RATE_WINDOWS_S]
            return Statistics(
                boot_timestamp_ms=self._boot_timestamp_ms,
                runtime_ms=now_ms - self._boot_ms,
                put_messages=messages,
                put_bytes=sum(totals.bytes for totals in topics.values()),
                put_failed=self._put_failed,
                get_found=self._found,
                get_miss=self._miss,
                transferred_messages=self._transferred,
                put_entire_time_max_ms=self._put_time_max_ms,
                get_entire_time_max_ms=self._get_time_max_ms,
                put_rates=_rates(now, then, lambda sample: sample.put),
                get_found_rates=_rates(now, then, lambda sample: sample.found),
                get_miss_rates=_rates(now, then, lambda sample: sample.miss),
                get_total_rates=_rates(now, then, lambda sample: sample.found + sample.miss),
                transferred_rates=_rates(now, then, lambda sample: sample.transferred),
                put_distribution=dict(zip(PUT_TIME_LABELS, minute.distribution, strict=True)),
                put_p99_ms=minute.percentile_ms(0.99),
                put_p999_ms=minute.percentile_ms(0.999),
                put_latency=put_latency,
                flush_latency=flush_latency,
                topics=topics,
            )

    def _take(self, now_ms: int, put: int) -> _Sample:
        return _Sample(now_ms, put, self._found, self._miss, self._transferred)

    def _sample_before(self, window_s: int) -> _Sample:
        """The snapshot `window_s` samples ago, or the oldest there is."""
        return self._samples[max(0, len(self._samples) - window_s)]

    def _rotate(self, now_ms: int) -> None:
        """Count the puts since the last time, and close the minute that is over. Under the lock."""
        counted, sum_ns, max_ns = self._put_times()
        self._put_latency.add(counted, sum_ns, max_ns)
        self._minute.add(counted, max_ns)
        longest_ms = max_ns // 1_000_000
        if longest_ms > self._put_time_max_ms:
            self._put_time_max_ms = longest_ms
        over, began_ms = self._minute, self._minute_began_ms
        past_ms = now_ms - began_ms
        if past_ms < ROTATION_MS:
            return
        # First, and from what was read above: a handler that comes in between closes the same
        # minute, or none.
        self._minute_began_ms = began_ms + past_ms - past_ms % ROTATION_MS
        # No put for two minutes: the last full one was empty.
        self._last_minute = over if past_ms < 2 * ROTATION_MS else PutTimes()
        self._minute = PutTimes()


def _rates(now: _Sample, then: list[_Sample], count: Callable[[_Sample], int]) -> Rates:
    """Events a second since each of three snapshots."""
    return Rates(
        *(
            (count(now) - count(before))
            * 1000.0
            / max(now.moment_ms - before.moment_ms, SHORTEST_WINDOW_MS)
            for before in then
        )
    )


def runtime_info(
    statistics: Statistics, positions: Mapping[str, object] | None = None
) -> dict[str, str]:
    """The text form that RocketMQ's administrators know (semantics 14.2).

    `positions` adds what the store knows and the statistics do not, under RocketMQ's names:
    commitLogMinOffset, commitLogMaxOffset, commitLogDiskRatio, … Percentiles without a sample are
    0.00, since that form has no word for it.
    """
    days, rest = divmod(statistics.runtime_ms // 1000, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    distribution = " ".join(f"{k}:{v}" for k, v in statistics.put_distribution.items())
    info: dict[str, object] = {
        "bootTimestamp": statistics.boot_timestamp_ms,
        "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]",
        "putMessageEntireTimeMax": statistics.put_entire_time_max_ms,
        "putMessageTimesTotal": statistics.put_messages,
        "putMessageFailedTimes": statistics.put_failed,
        "putMessageSizeTotal": statistics.put_bytes,
        "putMessageDistributeTime": distribution,
        "putMessageAverageSize": statistics.put_average_bytes,
        "dispatchMaxBuffer": 0,
        "getMessageEntireTimeMax": statistics.get_entire_time_max_ms,
        "putTps": _text(statistics.put_rates),
        "getFoundTps": _text(statistics.get_found_rates),
        "getMissTps": _text(statistics.get_miss_rates),
        "getTotalTps": _text(statistics.get_total_rates),
        "getTransferredTps": _text(statistics.transferred_rates),
        "putLatency99": f"{statistics.put_p99_ms or 0:.2f}",
        "putLatency999": f"{statistics.put_p999_ms or 0:.2f}",
        **(positions or {}),
    }
    return {name: str(value) for name, value in info.items()}


def _text(rates: Rates) -> str:
    return " ".join(f"{rate:g}" for rate in rates)
