"""Histograms of durations: cheap to record, honest about the tail."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.values.public import public

__all__ = [
    "PUT_TIME_BOUNDS_NS",
    "PUT_TIME_LABELS",
    "Latency",
    "LatencyHistogram",
    "PutTimes",
]

#: Buckets of one power of two: the width of a bucket is at most 1/16 of its values.
_SUB_BITS: Final = 4
_SUB_COUNT: Final = 1 << _SUB_BITS
#: Durations of 2^40 ns (18 minutes) and more share the last bucket.
_LONGEST_BITS: Final = 40
_BUCKETS: Final = (_LONGEST_BITS - _SUB_BITS + 1) * _SUB_COUNT


@public
@dataclass(frozen=True, slots=True, repr=False)
class Latency:
    """Percentiles of `count` durations, in ns; None while there are none. p50, p99 and p99.9 are up
    to 1/16 too large."""

    count: int
    mean_ns: float | None = None
    p50_ns: int | None = None
    p99_ns: int | None = None
    p999_ns: int | None = None
    max_ns: int | None = None

    def __repr__(self) -> str:
        """Milliseconds, of what there is."""
        if not self.count:
            return "Latency(count=0)"
        names = ("mean", "p50", "p99", "p999", "max")
        times = (getattr(self, f"{name}_ns") for name in names)
        shown = (
            f"{n}={t / 1e6:.3f} ms" for n, t in zip(names, times, strict=True) if t is not None
        )
        return f"Latency(count={self.count}, {', '.join(shown)})"


def bucket_of(duration_ns: int) -> int:
    """Number of the bucket that counts `duration_ns`."""
    if duration_ns < _SUB_COUNT:
        return max(duration_ns, 0)
    shift = duration_ns.bit_length() - _SUB_BITS - 1
    return min((shift << _SUB_BITS) + (duration_ns >> shift), _BUCKETS - 1)


def bucket_limit(bucket: int) -> int:
    """Largest duration that the bucket counts."""
    if bucket < _SUB_COUNT:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return ((_SUB_COUNT + (bucket & (_SUB_COUNT - 1)) + 1) << shift) - 1


class LatencyHistogram:
    """Counts durations in buckets whose width grows with their values. Thread-safe; a signal
    handler may interrupt any line."""

    __slots__ = ("_count", "_counts", "_lock", "_max_ns", "_sum_ns")

    def __init__(self) -> None:
        self._lock = SignalSafeLock("a histogram")
        self._counts = [0] * _BUCKETS
        self._count = 0
        self._sum_ns = 0
        self._max_ns = 0

    def record(self, duration_ns: int) -> None:
        self.add([(duration_ns, 1)], duration_ns, duration_ns)

    def add(self, counted: Iterable[tuple[int, int]], sum_ns: int, max_ns: int) -> None:
        """Many at once: pairs of a duration and how many fall into its bucket, their sum, the
        longest."""
        with self._lock():
            for duration_ns, number in counted:
                self._counts[bucket_of(duration_ns)] += number
                self._count += number
            self._sum_ns += sum_ns
            if max_ns > self._max_ns:  # no call here: a signal handler may run after one
                self._max_ns = max_ns

    def summary(self) -> Latency:
        with self._lock():
            counts = self._counts.copy()
            count, total_ns, max_ns = self._count, self._sum_ns, self._max_ns
        if count == 0:
            return Latency(0)
        p50, p99, p999 = (self._value_at(counts, count, share, max_ns) for share in (500, 990, 999))
        return Latency(count, total_ns / count, p50, p99, p999, max_ns)

    @staticmethod
    def _value_at(counts: list[int], count: int, permille: int, max_ns: int) -> int:
        """Smallest bucket limit that `permille` of all durations do not pass."""
        wanted = -(-count * permille // 1000)
        seen = 0
        for bucket, of_bucket in enumerate(counts):
            seen += of_bucket
            if seen >= wanted:
                # The last bucket has no limit of its own.
                return max_ns if bucket == _BUCKETS - 1 else min(bucket_limit(bucket), max_ns)
        return max_ns


#: RocketMQ's 13 buckets of whole put times: exclusive upper bounds in ms, and what it calls them.
_DISTRIBUTION_BOUNDS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
PUT_TIME_LABELS: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
#: RocketMQ's 76 buckets for percentiles: inclusive upper bounds in ms, the last without one.
_PERCENTILE_BOUNDS: Final[tuple[int, ...]] = (
    *range(1, 21),
    *range(22, 51, 2),
    *range(55, 101, 5),
    *range(110, 201, 10),
    *range(250, 501, 50),
    *range(600, 1001, 100),
    *range(2000, 10_001, 1000),
)
PERCENTILE_BUCKETS: Final = len(_PERCENTILE_BOUNDS) + 1

#: Inclusive upper bounds, ns, that refine both tables above: counts between them give the counts of
#: every bucket. The last bucket has no bound.
PUT_TIME_BOUNDS_NS: Final = tuple(
    sorted(
        {
            *map(bucket_limit, range(_BUCKETS)),
            *((bound + 1) * 1_000_000 - 1 for bound in _PERCENTILE_BOUNDS),
            *(bound * 1_000_000 - 1 for bound in _DISTRIBUTION_BOUNDS),
        }
    )
)


class PutTimes:
    """Put times of one minute in RocketMQ's buckets. Its owner serialises the calls."""

    __slots__ = ("distribution", "max_ms", "percentiles")

    def __init__(self) -> None:
        self.distribution = [0] * len(PUT_TIME_LABELS)
        self.percentiles = [0] * PERCENTILE_BUCKETS
        self.max_ms = 0

    def add(self, counted: Iterable[tuple[int, int]], max_ns: int) -> None:
        """Pairs of a duration in ns and how many fall into its buckets; the longest of them."""
        for duration_ns, number in counted:
            duration_ms = duration_ns // 1_000_000
            self.distribution[bisect_right(_DISTRIBUTION_BOUNDS, duration_ms)] += number
            self.percentiles[bisect_left(_PERCENTILE_BOUNDS, duration_ms)] += number
        self.max_ms = max(self.max_ms, max_ns // 1_000_000)

    def percentile_ms(self, share: float) -> float | None:
        """What `share` of the puts stayed below, linear within its bucket; None without puts."""
        bounds: tuple[int, ...] = (*_PERCENTILE_BOUNDS, self.max_ms)
        wanted = sum(self.percentiles) * share
        seen = 0
        lower = 0
        for bound, count in zip(bounds, self.percentiles, strict=True):
            if count and seen + count >= wanted:
                return lower + (bound - lower) * (wanted - seen) / count
            seen += count
            lower = bound
        return None
