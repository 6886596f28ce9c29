"""The lag of streams, in messages and seconds of each topic: Spark gives bytes of all topics.

Spark reports to a listener where a query has come. It does not say which store that is, so the
caller names stores; the uuid in the offset says which one is meant.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketstore import RocketStoreError, Store
from rocketstore.spark.errors import bad_option
from rocketstore.spark.source.queue_offsets import next_from
from rocketstore.spark.stores import open_to_read, store_path, store_uuid
from rocketstore.values import LIMITS, is_system_topic, parse_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

__all__ = ["LagTable", "StreamLag", "lag_listener"]

logger = logging.getLogger(__name__)

METRICS = {
    "messages": "Messages that a stream has not read yet.",
    "bytes": "Bytes of the log, of all topics, that a stream has not read yet.",
    "seconds": "Age of the oldest message that a stream has not read yet.",
}


@dataclass(frozen=True, slots=True)
class StreamLag:
    """The lag of a stream in one topic. `query`: its name, else its id. `seconds`: since the
    oldest message that it has not read was stored; 0 without one. `bytes`: of the log, of all
    topics."""

    query: str
    path: str
    topic: str
    messages: int
    bytes: int
    seconds: float


class LagTable:
    """The lags of the queries that a session runs over some stores; used by several threads.

    An error of a store is logged once and never stops a query.
    """

    def __init__(
        self,
        paths: Iterable[str],
        topics: Iterable[str] | None,
        report: Callable[[StreamLag], None] | None = None,
    ) -> None:
        self._paths = tuple(paths)
        self._topics = None if topics is None else frozenset(topics)
        self._report = report
        self._lock = threading.Lock()
        #: Query id → its name, and where it has come in each store, by path.
        self._queries: dict[str, tuple[str, dict[str, int]]] = {}
        self._lags: dict[str, list[StreamLag]] = {}
        self._warned: set[str] = set()

    @property
    def lags(self) -> list[StreamLag]:
        """Of all queries that run, as they were last counted."""
        # Without the lock, since a signal's handler may raise in the main thread, which asks.
        return [lag for lags in list(self._lags.values()) for lag in lags]

    def progressed(self, query: str, name: str | None, offsets: Iterable[str | None]) -> None:
        """A query has come to these offsets, one a source, as JSON."""
        places: dict[str, int] = {}
        for text in offsets:
            for path, place in self._places(text):
                places[path] = min(place, places.get(path, place))
        with self._lock:
            self._queries[query] = name or query, places
        self.looked_at(query)

    def looked_at(self, query: str) -> None:
        """Counts the lag of a query again; the query may have done nothing since."""
        with self._lock:
            name, places = self._queries.get(query, (query, {}))
        found: list[StreamLag] = []
        for path, place in places.items():
            try:
                with open_to_read(path, lossy=True) as store:
                    found += lags_of(store, self._topics, name, path, place)
            except (RocketStoreError, OSError) as error:
                self._warn_once(f"the lag of {name} is not known: {error}")
        with self._lock:
            if query in self._queries:
                self._lags[query] = found
        for lag in found if self._report is not None else ():
            self._report(lag)  # type: ignore[misc]

    def ended(self, query: str) -> None:
        with self._lock:
            self._queries.pop(query, None)
            self._lags.pop(query, None)

    def collect(self) -> Iterator[Any]:
        """For `prometheus_client.REGISTRY.register`."""
        from prometheus_client.core import GaugeMetricFamily

        lags = self.lags
        for name, text in METRICS.items():
            family = GaugeMetricFamily(
                f"rocketstore_stream_lag_{name}", text, labels=("query", "store", "topic")
            )
            for lag in lags:
                family.add_metric((lag.query, lag.path, lag.topic), getattr(lag, name))
            yield family

    def _places(self, text: str | None) -> Iterator[tuple[str, int]]:
        """The store of an offset, and the place in it; nothing for other sources and other
        stores."""
        try:
            offset: Any = parse_json(text or "null", LIMITS["spark"])
            uuid, place = offset["store"], offset["phys"]
        except (ValueError, TypeError, KeyError):
            return
        if isinstance(place, int):
            yield from ((path, place) for path in self._paths if self._uuid(path) == uuid)

    def _uuid(self, path: str) -> str | None:
        try:
            return store_uuid(path)
        except RocketStoreError as error:
            self._warn_once(f"{error}")
            return None

    def _warn_once(self, text: str) -> None:
        with self._lock:
            seen = text in self._warned
            self._warned.add(text)
        if not seen:
            logger.warning("%s", text)


def lags_of(
    store: Store, topics: frozenset[str] | None, query: str, path: str, place: int
) -> Iterator[StreamLag]:
    """Of each topic, how much lies at or after a physical offset."""
    behind = max(0, store.visible_offset - place)
    now_ms = time.time() * 1000
    for topic in sorted(store.topics(system=True)):
        if is_system_topic(topic) if topics is None else topic not in topics:
            continue
        messages, oldest_ms = 0, now_ms
        for queue_id in store.queues(topic):
            end = store.max_queue_offset(topic, queue_id)
            first = next_from(store, topic, queue_id, place)
            messages += max(0, end - first)
            if first < end:
                with store.consumer(topic, queue_id=queue_id, offset=first) as consumer:
                    for message in consumer.poll(max_messages=1):
                        oldest_ms = min(oldest_ms, message.store_timestamp_ms)
        yield StreamLag(query, path, topic, messages, behind, (now_ms - oldest_ms) / 1000)


def lag_listener(
    *paths: str | os.PathLike[str],
    topics: str | Iterable[str] | None = None,
    report: Callable[[StreamLag], None] | None = None,
) -> StreamingQueryListener:
    """A listener that knows the lag of streams over these stores.

        listener = spark.lag_listener("data/orders", topics="orders")
        session.streams.addListener(listener)
        prometheus_client.REGISTRY.register(listener)  # or report=print, or listener.lags

    Args:
        paths: of the stores that streams read.
        topics: these alone; None: every topic of the stores, without those that services use
            themselves.
        report: called with a `StreamLag` of each topic, after each micro-batch.

    Raises:
        SparkFaceError: RS_BAD_OPTION: no path.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    if not paths:
        raise bad_option("paths", paths, "the stores that streams read")
    names = (topics,) if isinstance(topics, str) else topics
    table = LagTable([store_path(path) for path in paths], names, report)

    class LagListener(StreamingQueryListener):
        """Hands what Spark reports to a `LagTable`."""

        collect = staticmethod(table.collect)

        @property
        def lags(self) -> list[StreamLag]:
            return table.lags

        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            progress = event.progress
            ends = [source.endOffset for source in progress.sources]
            table.progressed(str(progress.id), progress.name, ends)

        def onQueryIdle(self, event: Any) -> None:
            table.looked_at(str(event.id))

        def onQueryTerminated(self, event: Any) -> None:
            table.ended(str(event.id))

    return LagListener()
