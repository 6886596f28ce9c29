"""A collector: asks stores when Prometheus asks, and keeps nothing itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from rocketstore import ReadFailedError, Store, StoreClosedError
from rocketstore.values import text

if TYPE_CHECKING:
    from prometheus_client import Metric

    from rocketstore import Latency, Statistics

__all__ = ["StoreCollector"]

#: Metric → help text. Names begin with `rocketstore_`; those of counters end in `_total`.
GAUGES: Final = {
    "open": "1 while the store is open in this process, else 0 and nothing else.",
    "blocked": "1: why the store refuses puts, reads or queue units (RocketMQ's running flags).",
    "position_bytes": "Physical offsets: begin and end of the log, and how far it is flushed, "
    "visible and in its queues (dispatched).",
    "messages": "Messages that the queues of a topic hold.",
    "group_lag_messages": "Messages of a topic that a group has not committed; of a queue where it "
    "never did, all.",
}
COUNTERS: Final = {
    "put_messages": "Messages that were stored since the store was opened.",
    "put_bytes": "Bytes of their records.",
    "put_failures": "Puts that reached the log and were not stored.",
    "reads": "Reads that found messages, and that found none.",
    "read_messages": "Messages that were read.",
}
SUMMARIES: Final = {
    "put_seconds": "Times of calls that wait for the disk; of puts that wait for nothing a sample.",
    "flush_seconds": "Times of syncs of the log.",
}


class StoreCollector(Collector):
    """Metrics of open stores, by the names that they get in the label `store`. For
    `prometheus_client.REGISTRY.register`, once for all stores of a process: metrics of one name
    belong to one collector.

    A scrape asks every queue of every topic for its bounds and each group for its offsets: some ten
    microseconds a queue. Counters begin at 0 when a store is opened; a reader (`mode="r"`) counts
    its own reads, its positions, messages and lags are those of the store. Stores may be closed
    meanwhile, from any thread. One that takes no reads has neither messages nor lags; `blocked`
    says why.
    """

    def __init__(self, stores: Mapping[str, Store]) -> None:
        if not isinstance(stores, Mapping):
            raise TypeError(f"stores = {stores!r}: expected a mapping of names to stores")
        self._stores = {text("name of a store", name): store for name, store in stores.items()}
        for name, store in self._stores.items():
            if not isinstance(store, Store):
                raise TypeError(f"store {name!r}: expected an open Store, not {store!r}")

    def collect(self) -> Iterator[Metric]:
        """One family for each metric, with the samples of all stores."""
        found: dict[str, Metric] = {}
        for kind, named in (
            (GaugeMetricFamily, GAUGES),
            (CounterMetricFamily, COUNTERS),
            (SummaryMetricFamily, SUMMARIES),
        ):
            for name, says in named.items():
                found[name] = kind(f"rocketstore_{name}", says)
        for name, store in self._stores.items():
            for metric, suffix, labels, value in _Samples(store).taken:
                family = found[metric]
                family.add_sample(family.name + suffix, {"store": name, **labels}, value)
        yield from found.values()


class _Samples:
    """Those of one store: metric, suffix, labels but for `store`, value."""

    def __init__(self, store: Store) -> None:
        self.taken: list[tuple[str, str, dict[str, str], float]] = []
        try:
            self.positions(store)
            self.counted(store.stats())
            with contextlib.suppress(ReadFailedError):
                for topic in store.topics():
                    self.topic(store, topic)
        except StoreClosedError:
            self.taken = []
            self.add("open", 0)
            return
        for state in store.flags.states:
            self.add("blocked", 1, reason=str(state.reason.name))
        self.add("open", 1)

    def add(self, name: str, value: float, suffix: str = "", **labels: str) -> None:
        self.taken.append((name, suffix, labels, value))

    def positions(self, store: Store) -> None:
        # The last position first: a writer works meanwhile, and none may exceed the next one.
        for position in ("begin", "dispatched", "flushed", "visible", "end"):
            offset = getattr(store, f"{position}_offset")
            self.add("position_bytes", offset, position=position)

    def topic(self, store: Store, topic: str) -> None:
        groups = {group: store.committed(topic, group) for group in store.groups(topic)}
        messages, lags = 0, dict.fromkeys(groups, 0)
        for queue_id in store.queues(topic):
            low = store.min_queue_offset(topic, queue_id)
            high = store.max_queue_offset(topic, queue_id)
            messages += high - low
            for group, stored in groups.items():
                lags[group] += high - min(max(stored.get(queue_id, 0), low), high)
        self.add("messages", messages, topic=topic)
        for group, lag in lags.items():
            self.add("group_lag_messages", lag, topic=topic, group=group)

    def counted(self, stats: Statistics) -> None:
        for topic, totals in stats.topics.items():
            self.add("put_messages", totals.messages, "_total", topic=topic)
            self.add("put_bytes", totals.bytes, "_total", topic=topic)
        self.add("put_failures", stats.put_failed, "_total")
        self.add("reads", stats.get_found, "_total", result="found")
        self.add("reads", stats.get_miss, "_total", result="missed")
        self.add("read_messages", stats.transferred_messages, "_total")
        self.times("put_seconds", stats.put_latency)
        self.times("flush_seconds", stats.flush_latency)

    def times(self, name: str, times: Latency) -> None:
        quantiles = {"0.5": times.p50_ns, "0.99": times.p99_ns, "0.999": times.p999_ns}
        for quantile, duration_ns in quantiles.items():
            if duration_ns is not None:
                self.add(name, duration_ns / 1e9, quantile=quantile)
        self.add(name, times.count, "_count")
        self.add(name, times.count * (times.mean_ns or 0) / 1e9, "_sum")
