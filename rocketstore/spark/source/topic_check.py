"""Whether the topics and queues that a read names are there: a name that is mistyped gives no rows
else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rocketstore import Store
from rocketstore.archive import Segment
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.options import NAME
from rocketstore.values import RecordFilter

__all__ = ["Present", "check_archive", "check_names", "check_store", "note_present"]

#: Topic → queue ids, which are looked for only where queues are named.
Present = dict[str, set[int]]
#: Names in the text of an error.
NAMED_MAX = 5
REMEDY = "name others"


def note_present(store: Store, wanted: Mapping[str, Any], present: Present) -> None:
    """Adds what a store has to `present`. `wanted`: arguments of `rocketstore.scan`."""
    chosen = topics_of(wanted)
    for topic in store.topics(system=True):
        queues = present.setdefault(topic, set())
        if wanted.get("queues") is not None and chosen(topic):
            queues.update(store.queues(topic))


def check_store(
    path: str, wanted: Mapping[str, Any], present: Present, remedy: str = REMEDY
) -> None:
    """Raises SparkFaceError: RS_NO_TOPIC_THERE, for the first topic or queue that is named and not
    there."""
    known, chosen = RecordFilter.of(**wanted), topics_of(wanted)
    named = set(known.topics or ())
    by_topic = {topic: ids for topic, ids in known.queues_by_topic or () if chosen(topic)}
    missing = sorted((named | set(by_topic)) - set(present))
    check_names(path, missing, remedy)
    if missing:
        raise absent(path, "topic", missing, remedy)
    for topic, ids in by_topic.items():
        if queues := sorted(ids - present[topic]):
            raise absent(path, f"queue of {topic!r}:", queues, remedy)
    queues = sorted((known.queue_ids or set()) - set().union(*present.values()))
    if queues:
        of = ", ".join(map(repr, sorted(named)[:NAMED_MAX])) or "any topic that is wanted"
        raise absent(path, f"queue of {of}:", queues, remedy)


def check_names(path: str, topics: Iterable[str], remedy: str = REMEDY) -> None:
    """Raises SparkFaceError: RS_NO_TOPIC_THERE, for names that no queue can have."""
    impossible = sorted(topic for topic in topics if NAME.fullmatch(topic) is None)
    if impossible:
        text = "no queue can have this name; records of another program may: topicPattern or where"
        if any("." in topic for topic in impossible):
            remedy = f"a topic of Kafka with dots may have '-' in their place; {remedy}"
        raise absent(path, "topic", impossible, f"{text} finds them; {remedy}")


def check_archive(
    path: str, wanted: Mapping[str, Any], segments: Iterable[Segment], remedy: str = REMEDY
) -> None:
    """As `check_store`, for topics; where a segment does not list its topics, all may be there."""
    found: set[str] = set()
    for segment in segments:
        if segment.topics is None:
            return
        found.update(segment.topics)
    missing = sorted((RecordFilter.of(**wanted).topics or set()) - found)
    if missing:
        raise absent(path, "topic", missing, remedy)


def topics_of(wanted: Mapping[str, Any]) -> Any:
    """Which topics are chosen: what the function gives for one is true for those."""
    return RecordFilter.of(**wanted).acceptance() or (lambda topic: True)


def absent(path: str, what: str, names: list[Any], remedy: str) -> SparkFaceError:
    shown = ", ".join(map(repr, names[:NAMED_MAX]))
    return SparkFaceError("RS_NO_TOPIC_THERE", f"{path} has no {what} {shown}; {remedy}")
