"""A collector: asks stores when Prometheus asks, and keeps nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from rocketstore import GuestStoreError, Store, StoreClosedError, StoreReplacedError
from rocketstore.values import is_system_group, is_system_topic, text

if TYPE_CHECKING:
    from prometheus_client import Metric

    from rocketstore import GuestFigures, Latency, Statistics

__all__ = ["StoreCollector"]

logger = logging.getLogger(__name__)

#: Modules whose classes a user can name.
PUBLIC: Final = ("rocketstore", "builtins")
#: Metric → help text. Names begin with `rocketstore_`; those of counters end in `_total`.
GAUGES: Final = {
    "open": "1 while the store is open in this process and answers. 0 while a part of it cannot be "
    "asked; 0 and nothing else once it is closed or another store has its place.",
    "unreadable": "1: a topic that could not be asked, or without a topic the store itself, and "
    "the class of the error. The process logs its text.",
    "blocked": "1: why the store refuses puts, reads or queue units (RocketMQ's running flags).",
    "behind": "1: consume queues or the key index lack messages that the log holds; reads that may "
    "miss some raise StoreBehindError.",
    "position_bytes": "Physical offsets: begin and end of the log, and how far it is flushed, "
    "visible and in its queues (dispatched).",
    "messages": "Messages that the queues of a topic hold.",
    "group_lag_messages": "Messages of a topic that a group has not committed; of a queue where it "
    "never did, all.",
    "guest_in_flight": "Requests of a process that shares the store which its host has not yet "
    "answered.",
    "guest_silent_seconds": "Since the host last heard of it.",
    "replication_peers": "Replicas that are connected to a master; of a replica 1 while its master "
    "is.",
    "replication_lag_bytes": "What the disk of a replica lacks of its master's log, of a master by "
    "the address of each replica that is connected.",
    "replication_lag_seconds": "How long it has lacked some of it; 0 while it lacks nothing.",
    "replication_stopped": "1: a replica does not go on by itself, by the class of the error; or a "
    "master serves no replicas any more.",
}
COUNTERS: Final = {
    "put_messages": "Messages that were stored since the store was opened.",
    "put_bytes": "Bytes of their records.",
    "put_failures": "Puts that reached the log and were not stored.",
    "reads": "Reads that found messages, and that found none.",
    "read_messages": "Messages that were read.",
    "guest_put_messages": "Messages that the host has stored for a process that shares the store.",
    "guest_put_bytes": "Bytes of its requests for them.",
    "replication_connections": "Connections of replication since the store was opened: each one "
    "beyond the first of a peer is a reconnect.",
    "replication_bytes": "Bytes of the log that they carried.",
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

    Topics and groups that services use themselves have samples with `system=True` only, but for
    `unreadable`.

    No error of a store ends a scrape. A topic that cannot be asked has `unreadable` in place of its
    other samples, and `open` of its store is 0. All other topics and stores are as ever. The
    collector logs the error with its traceback, and again only when another class of error comes.
    """

    def __init__(self, stores: Mapping[str, Store], *, system: bool = False) -> None:
        if not isinstance(stores, Mapping):
            raise TypeError(f"stores = {stores!r}: expected a mapping of names to stores")
        self._stores = {text("name of a store", name): store for name, store in stores.items()}
        for name, store in self._stores.items():
            if not isinstance(store, Store):
                raise TypeError(f"store {name!r}: expected an open Store, not {store!r}")
        self._system = system
        # Topics and classes of the errors that the last scrape met, by store.
        self._logged: dict[str, frozenset[tuple[str, str]]] = {}

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
            samples = _Samples(store, system=self._system)
            for metric, suffix, labels, value in samples.taken:
                family = found[metric]
                family.add_sample(family.name + suffix, {"store": _shown(name), **labels}, value)
            self._log(name, samples.errors)
        yield from found.values()

    def _log(self, name: str, errors: Mapping[str, Exception]) -> None:
        """Logs each kind of error once: a scrape comes every few seconds."""
        said = self._logged.get(name, frozenset())
        self._logged[name] = frozenset(
            (topic, type(error).__name__) for topic, error in errors.items()
        )
        for topic, error in errors.items():
            if (topic, type(error).__name__) not in said:
                part = f"topic {topic!r} of store {name!r}" if topic else f"store {name!r}"
                logger.warning("a scrape cannot ask %s: %s", part, error, exc_info=error)
            error.with_traceback(None)  # its frames would keep files of the store mapped


def _shown(label: str) -> str:
    """Text that UTF-8 can have: half of a surrogate pair, which a file of offsets may name, shows
    as its escape."""
    return label.encode("utf-8", "backslashreplace").decode()


class _Samples:
    """Those of one store: metric, suffix, labels but for `store`, value."""

    def __init__(self, store: Store, *, system: bool) -> None:
        self.system = system
        self.taken: list[tuple[str, str, dict[str, str], float]] = []
        #: What could not be asked: by topic, that of the store itself by "".
        self.errors: dict[str, Exception] = {}
        try:
            self.ask("", lambda: self.positions(store))
            self.ask("", lambda: self.counted(store.stats()))
            self.ask("", lambda: self.replication(store))
            self.ask("", lambda: self.topics(store))
        except (StoreClosedError, StoreReplacedError):
            self.taken, self.errors = [], {}
            self.add("open", 0)
            return
        for state in store.flags.states:
            self.add("blocked", 1, reason=str(state.reason.name))
        for topic, error in self.errors.items():
            labels = {"topic": topic} if topic else {}
            self.add("unreadable", 1, error=type(error).__name__, **labels)
        for part, _ in store.flags.behind:
            self.add("behind", 1, part=part)
        self.add("open", 0 if self.errors else 1)

    def ask(self, topic: str, part: Callable[[], None]) -> bool:
        """Whether it answered. One part, all of its samples or none. Its error takes no other part with it: those that
        nobody expects too, or a fault of one store would end the metrics of a whole program."""
        before = len(self.taken)
        try:
            part()
        except (StoreClosedError, StoreReplacedError):
            raise
        except Exception as error:
            del self.taken[before:]
            self.errors.setdefault(topic, error)
            return False
        return True

    def add(self, name: str, value: float, suffix: str = "", **labels: str) -> None:
        ours = is_system_topic(labels.get("topic", "")) or is_system_group(labels.get("group", ""))
        if ours and not self.system and name != "unreadable":
            return
        shown = {label: _shown(text) for label, text in labels.items()}
        self.taken.append((name, suffix, shown, value))

    def topics(self, store: Store) -> None:
        if any(state.reason.name == "NOT_READABLE" for state in store.flags.states):
            return  # `blocked` says so
        if any(part == "consume queues" for part, _ in store.flags.behind):
            return  # `behind` says so
        for topic in store.topics(system=True):
            bounds: dict[int, tuple[int, int]] = {}
            if self.ask(topic, partial(self.messages, store, topic, bounds)):
                self.ask(topic, partial(self.lags, store, topic, bounds))

    def positions(self, store: Store) -> None:
        # The last position first: a writer works meanwhile, and none may exceed the next one.
        for position in ("begin", "dispatched", "flushed", "visible", "end"):
            offset = getattr(store, f"{position}_offset")
            self.add("position_bytes", offset, position=position)

    def replication(self, store: Store) -> None:
        """Of an open store that is a master or a replica."""
        try:
            status = store.replication
        except GuestStoreError:
            return  # its host knows
        if status.protocol is None:
            return
        self.add("replication_peers", len(status.peers))
        for peer in status.peers:
            self.add("replication_lag_bytes", peer.lag_bytes, peer=peer.address)
            self.add("replication_lag_seconds", peer.lag_s, peer=peer.address)
        if status.error is not None:
            named = (one for one in type(status.error).__mro__ if one.__module__ in PUBLIC)
            self.add("replication_stopped", 1, error=next(named).__name__)
        self.add("replication_connections", status.connections, "_total")
        self.add("replication_bytes", status.bytes, "_total")

    def messages(self, store: Store, topic: str, bounds: dict[int, tuple[int, int]]) -> None:
        """Fills `bounds`: the smallest and the next offset of each queue."""
        for queue_id in store.queues(topic):
            low = store.min_queue_offset(topic, queue_id)
            bounds[queue_id] = low, store.max_queue_offset(topic, queue_id)
        self.add("messages", sum(high - low for low, high in bounds.values()), topic=topic)

    def lags(self, store: Store, topic: str, bounds: dict[int, tuple[int, int]]) -> None:
        lags: dict[str, int] = {}
        for group in store.groups(topic, system=True):
            stored = store.committed(topic, group)
            lag = sum(
                high - min(max(stored.get(queue_id, 0), low), high)
                for queue_id, (low, high) in bounds.items()
            )
            # Two names may show alike: one metric, with the larger lag.
            lags[_shown(group)] = max(lag, lags.get(_shown(group), 0))
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
        self.guests(stats)

    def guests(self, stats: Statistics) -> None:
        """One for each pid and name: a process may have opened the store twice, and processes of
        two containers may be called the same."""
        named: dict[tuple[int, str], list[GuestFigures]] = {}
        for one in stats.guests:
            named.setdefault((one.pid, _shown(one.name)), []).append(one)
        for (pid, name), same in named.items():
            labels = {"pid": str(pid), "process": name}
            self.add("guest_put_messages", sum(one.puts for one in same), "_total", **labels)
            self.add("guest_put_bytes", sum(one.bytes for one in same), "_total", **labels)
            self.add("guest_in_flight", sum(one.in_flight for one in same), **labels)
            self.add("guest_silent_seconds", min(one.heard_s for one in same), **labels)

    def times(self, name: str, times: Latency) -> None:
        quantiles = {"0.5": times.p50_ns, "0.99": times.p99_ns, "0.999": times.p999_ns}
        for quantile, duration_ns in quantiles.items():
            if duration_ns is not None:
                self.add(name, duration_ns / 1e9, quantile=quantile)
        self.add(name, times.count, "_count")
        self.add(name, times.count * (times.mean_ns or 0) / 1e9, "_sum")
