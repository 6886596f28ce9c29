"""Topics of RocketMQ's own services. Their messages are delivered, or were, in topics of
applications."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketstore.archive import is_uri
from rocketstore.spark.errors import HINTS, SparkFaceError
from rocketstore.spark.sink.shards import shard_paths
from rocketstore.spark.source.plan import scan_of
from rocketstore.spark.source.topic_check import topics_of
from rocketstore.spark.stores import open_to_read, store_path
from rocketstore.values import SYSTEM_PREFIXES, SYSTEM_TOPICS, RecordFilter, is_system_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "check_system_topics",
    "plain_rows",
    "system_counts",
    "system_topics",
    "warn_left_out",
]

logger = logging.getLogger(__name__)


def check_system_topics(
    path: str | os.PathLike[str], wanted: Mapping[str, Any], *, routed: bool
) -> None:
    """Logs how many messages of system topics a copy of a store leaves out.

    Args:
        routed: messages get another topic.

    Raises:
        SparkFaceError: RS_BAD_OPTION: messages of system topics are asked for as such.
    """
    named = RecordFilter.of(**wanted).named
    for topic in filter(is_system_topic, sorted(named) if not routed else ()):
        raise SparkFaceError(
            "RS_BAD_OPTION",
            f"topics = {topic!r}: services of the target would act upon every copy there, as upon "
            f"a delay or a decision; {HINTS['replay_to_topic']}, or name other topics",
        )
    if not named and not wanted.get("system_topics"):
        remedy = f"{HINTS['name_topics']} and {HINTS['replay_to_topic']}"
        warn_left_out(system_topics(store_path(path), wanted), remedy)


def plain_rows(frame: DataFrame) -> DataFrame:
    """Rows of other topics. Rows without a topic stay: the sink refuses or reports them."""
    return frame.where(~system_rows())


def system_counts(frame: DataFrame) -> list[Any]:
    """Messages of system topics, counted: rows of topic and count."""
    rows: list[Any] = frame.where(system_rows()).groupBy("topic").count().collect()
    return rows


def system_rows() -> Any:
    from pyspark.sql import functions as f

    topic = f.col("topic")
    found = topic.isin(*SYSTEM_TOPICS)
    for prefix in SYSTEM_PREFIXES:
        found = found | topic.startswith(prefix)
    return f.coalesce(found, f.lit(False))


def warn_left_out(found: Mapping[str, int | None], remedy: str) -> None:
    """Logs which topics are left out. `remedy`: how to have them."""
    if found:
        texts = [
            topic if count is None else f"{topic} ({count} messages)"
            for topic, count in sorted(found.items())
        ]
        logger.warning(
            "topics of RocketMQ itself are left out: %s; %s to have them", ", ".join(texts), remedy
        )


def system_topics(path: str, wanted: Mapping[str, Any]) -> dict[str, int | None]:
    """Those of a store, of shards or of an archive that `wanted` chooses, and how many messages
    they have, whatever their tags and times; None: not known."""
    chosen = topics_of({**wanted, "system_topics": True})
    found: dict[str, int | None] = {}
    if is_uri(path):
        archive = scan_of(path, system_topics=True).archive
        segments = () if archive is None else archive.segments
        held = {topic for segment in segments for topic in segment.topics or ()}
        return {topic: None for topic in held if is_system_topic(topic) and chosen(topic)}
    for one in shard_paths(path) or [path]:
        with open_to_read(one) as store:
            for topic in store.topics():
                if is_system_topic(topic) and chosen(topic):
                    count = sum(
                        store.max_queue_offset(topic, queue) - store.min_queue_offset(topic, queue)
                        for queue in store.queues(topic)
                    )
                    found[topic] = (found.get(topic) or 0) + count
    return found
