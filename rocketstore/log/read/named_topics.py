"""Topics that users name to read: a name that cannot be is refused, one that is not there is
logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from rocketstore.errors import InvalidTopicError, QueueNotFoundError
from rocketstore.log.layout.paths import check_topic, is_safe_name
from rocketstore.log.queues.multi_dispatch import LIGHT_PREFIX
from rocketstore.log.read.source import ReadSource

__all__ = ["check_listed", "check_named", "require_queue", "tell_missing"]

logger = logging.getLogger(__name__)

#: Topics that were logged, as (path of the store, topic), and how many of them are kept.
_told: set[tuple[str, str]] = set()
TOLD_MAX: Final = 10_000
#: Names in the text of an error, and names that the first of them is compared with.
SHOWN_MAX: Final = 3
COMPARED_MAX: Final = 1000


def check_named(topic: str, holds: Callable[[str], object]) -> None:
    """Refuses a name that no topic of a store has or can get.

    A put refuses some names that stores of other programs hold, as those of light queues; they are
    taken where the store `holds` them.

    Raises:
        InvalidTopicError: rocketstore and RocketMQ refuse such a topic, and the store has none.
    """
    try:
        check_topic(topic, wide=True)
    except InvalidTopicError as error:
        light = topic.startswith(LIGHT_PREFIX) and is_safe_name(topic)
        if not light and not holds(topic):
            raise InvalidTopicError(f"{error}; the store holds no such topic") from None


def check_listed(
    path: str,
    topics: Iterable[str],
    there: Collection[str],
    *,
    must_exist: bool,
    any_name: bool,
) -> None:
    """Looks at the `topics` that a user names, where those that are `there` are listed. `any_name`:
    records of other programs may have any.

    Raises:
        InvalidTopicError: no topic can have such a name.
        QueueNotFoundError: `must_exist`, and one is not there.
    """
    topics = sorted(topics)
    if not any_name:
        for topic in topics:
            check_named(topic, there.__contains__)
    if must_exist:
        require_topics(topics, there)
    for topic in topics:
        if topic not in there:
            tell_missing(path, topic)


def require_queue(source: ReadSource, topic: str, queue_id: int | None) -> None:
    """Raises QueueNotFoundError unless the topic is there, and has that queue."""
    if queue_id is not None and source.queue(topic, queue_id) is not None:
        return
    there = source.queues(topic)
    if not there:
        require_topics((topic,), source.topics())
    if queue_id is not None and queue_id not in there:
        numbers = ", ".join(map(str, sorted(there)))
        raise QueueNotFoundError(f"topic {topic!r} has no queue {queue_id}; its queues: {numbers}")


def require_topics(topics: Collection[str], there: Collection[str]) -> None:
    """Raises QueueNotFoundError unless all `topics` are `there`."""
    missing = sorted(set(topics).difference(there))
    if missing:
        names = ", ".join(map(repr, missing[:SHOWN_MAX]))
        raise QueueNotFoundError(f"there is no topic {names}{_near(missing[0], there)}")


def tell_missing(path: str, topic: str) -> None:
    """Says in the log, once in this process, that nothing can be read because there is no such
    topic yet."""
    if (path, topic) not in _told:
        if len(_told) >= TOLD_MAX:
            _told.clear()
        _told.add((path, topic))
        logger.warning(
            "%s: there is no topic %r: it gives nothing until a message of it is put; "
            "must_exist=True makes this an error",
            path,
            topic,
        )


def _near(topic: str, names: Collection[str]) -> str:
    """Which name may have been meant, in words."""
    if not names or len(names) > COMPARED_MAX:
        return ""
    from difflib import get_close_matches

    near = get_close_matches(topic, names, SHOWN_MAX)
    return f"; near to it: {', '.join(map(repr, near))}" if near else ""
