"""Which messages a scan takes: by topic, queue, tag, properties and store time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Final, TypedDict

from rocketstore.values.arguments import one_of, text, texts, whole_number
from rocketstore.values.reserved_names import is_system_topic
from rocketstore.values.timestamps import Timestamp, timestamp_ms

__all__ = ["Queues", "RecordFilter", "Wanted", "tag_set"]

#: Queue ids, or queue ids by topic.
Queues = int | Collection[int] | Mapping[str, Collection[int]]

TAGS: Final = "None, a tag, 'a || b' or several tags"
TIME_MIN: Final = -(2**63)
TIME_MAX: Final = 2**63 - 1


class Wanted(TypedDict, total=False):
    """The arguments of `rocketstore.scan` that choose messages, but for `where`, which has another
    meaning where Spark reads."""

    topics: str | Iterable[str] | None
    topic_pattern: str | None
    queues: Queues | None
    tags: str | Iterable[str] | None
    begin: Timestamp | None
    end: Timestamp | None
    system_topics: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordFilter:
    """The records that `rocketstore.scan` takes, checked. None takes all."""

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queue_ids: frozenset[int] | None = None
    queues_by_topic: tuple[tuple[str, frozenset[int]], ...] | None = None
    tags: frozenset[str] | None = None
    #: Store times in milliseconds: [start, end).
    start_ms: int = TIME_MIN
    end_ms: int = TIME_MAX
    #: An expression over properties (`rocketstore.filters`), which the caller has checked.
    where: str | None = None
    #: Whether records of system topics are left out, unless the topic is named.
    of_applications: bool = False

    def __setstate__(self, state: list[object]) -> None:
        """Values in the order of the fields. Pickles of earlier releases lack the last ones."""
        for field, value in zip_longest(fields(self), state):
            object.__setattr__(self, field.name, value)

    @classmethod
    def of(
        cls,
        *,
        topics: str | Iterable[str] | None = None,
        topic_pattern: str | None = None,
        queues: Queues | None = None,
        tags: str | Iterable[str] | None = None,
        where: str | None = None,
        begin: Timestamp | None = None,
        end: Timestamp | None = None,
        system_topics: bool = False,
    ) -> RecordFilter:
        """Raises ValueError or TypeError for what means nothing."""
        if topics is not None and topic_pattern is not None:
            raise ValueError(f"topic_pattern = {topic_pattern!r}: not together with topics")
        if topic_pattern is not None:
            _check_pattern(text("topic_pattern", topic_pattern))
        one_of("system_topics", system_topics, (True, False))
        start_ms = _time("begin", begin, TIME_MIN)
        end_ms = _time("end", end, TIME_MAX)
        if end_ms < start_ms:
            raise ValueError(f"end = {end}: before begin = {begin}")
        by_topic = queues if isinstance(queues, Mapping) else None
        return cls(
            topics=_names("topics", topics),
            topic_pattern=topic_pattern,
            queue_ids=None if queues is None or isinstance(queues, Mapping) else _ids(queues),
            queues_by_topic=None
            if by_topic is None
            else tuple((topic, _ids(by_topic[topic])) for topic in sorted(by_topic)),
            tags=tag_set(tags),
            start_ms=start_ms,
            end_ms=end_ms,
            where=None if where is None else text("where", where),
            of_applications=not system_topics,
        )

    @property
    def named(self) -> frozenset[str]:
        """The topics that are wanted by their names."""
        by_topic = self.queues_by_topic or ()
        return (self.topics or frozenset()) | {topic for topic, _ in by_topic}

    @property
    def timed(self) -> bool:
        return self.start_ms > TIME_MIN or self.end_ms < TIME_MAX

    def acceptance(self) -> Callable[[str], bool | frozenset[int]] | None:
        """What the scanner asks once for each topic: False none, True all, else of which queues."""
        topics, queue_ids = self.topics, self.queue_ids
        choices = (topics, self.topic_pattern, queue_ids, self.queues_by_topic)
        if not self.of_applications and all(choice is None for choice in choices):
            return None
        pattern = None if self.topic_pattern is None else re.compile(self.topic_pattern)
        by_topic = None if self.queues_by_topic is None else dict(self.queues_by_topic)
        hidden = self.of_applications and topics is None

        def accept(topic: str) -> bool | frozenset[int]:
            if topics is not None and topic not in topics:
                return False
            if pattern is not None and pattern.fullmatch(topic) is None:
                return False
            if by_topic is not None:
                return by_topic.get(topic, False)
            if hidden and is_system_topic(topic):
                return False
            return True if queue_ids is None else queue_ids

        return accept


def _names(name: str, given: str | Iterable[str] | None) -> frozenset[str] | None:
    return None if given is None else frozenset(texts(name, given, "a name, or several"))


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"topic_pattern = {pattern!r}: no regular expression, {error}") from None


def _ids(given: int | Collection[int]) -> frozenset[int]:
    several = given if isinstance(given, Iterable) else (given,)
    return frozenset(whole_number("queues", queue_id, 0, 2**31 - 1) for queue_id in several)


def _time(name: str, given: Timestamp | None, default: int) -> int:
    return default if given is None else timestamp_ms(name, given)


def tag_set(tags: str | Iterable[str] | None) -> frozenset[str] | None:
    """The tags wanted; None for all. A text may be RocketMQ's expression, `paid || refunded`, and
    `*` is all.

    Raises:
        ValueError, TypeError: what means nothing.
    """
    if tags is None:
        return None
    words = tags.split("||") if isinstance(tags, str) else texts("tags", tags, TAGS)
    wanted = frozenset(word.strip() for word in words)
    if "" in wanted or not wanted:
        raise ValueError(f"tags = {tags!r}: expected {TAGS}")
    return None if "*" in wanted else wanted
