"""Which messages a scan takes: by topic, queue, tag, properties and store time.

A pattern of topics is a regular expression of Python whose cost has a bound. `re` tries one way
through a name after the other, and there may be 2^n of them. Here all ways go on together: a name
is a row of places, and each piece of a pattern takes the set of places that are reached so far to
the set of those after it. `re` says what a single character is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from rocketstore.values.arguments import one_of, text, texts, whole_number
from rocketstore.values.reserved_names import is_system_topic
from rocketstore.values.timestamps import Timestamp, timestamp_ms

__all__ = ["Queues", "RecordFilter", "Wanted", "tag_set", "topic_test"]

#: Queue ids, or queue ids by topic.
Queues = int | Collection[int] | Mapping[str, Collection[int]]

TAGS: Final = "None, a tag, 'a || b' or several tags"
TIME_MIN: Final = -(2**63)
TIME_MAX: Final = 2**63 - 1

#: Characters of a pattern of topics.
PATTERN_MAX: Final = 2048
#: Ranges of characters, as in `[!-\uffff]`, whose end may be beyond U+00FF. `re` walks through each,
#: twice: 6 ms.
RANGES_MAX: Final = 4
RANGE: Final = re.compile(r"-(?:[^\x00-\xff]|\\[uUN])")
#: Brackets within brackets.
DEPTH_MAX: Final = 50
#: Places that the pieces of a pattern look at, for each character of a name and 100 more: 0.1 s for
#: a name of 255, at the most.
STEPS_MAX: Final = 1000
#: A number of times that no name reaches.
ENDLESS: Final = 1 << 32

#: Flags, or the begin of a group; an escape; a set; how often; letters that are not repeated.
TOKEN: Final = re.compile(
    r"\(\?(?:P<\w+>|[:=!]|[aimsu]+\))?|\\(?:x..|u.{4}|U.{8}|0[0-7]{0,2}|[0-7]{3}|N\{[^}]*\}|.)"
    r"|\[\^?\]?(?:\\.|[^]\\])*\]|(?:[*+?]|\{(?=[0-9,])[0-9]*,?[0-9]*\})[+?]?|[\w%-]+(?![*+?{])|.",
    re.DOTALL,
)
GROUP: Final = re.compile(r"\((?:\?(?:P<\w+>|[:=!]))?")
TIMES: Final = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
SHORT: Final = {"*": "{0,}", "+": "{1,}", "?": "{0,1}"}


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
            topic_test(text("topic_pattern", topic_pattern))
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
        pattern = None if self.topic_pattern is None else topic_test(self.topic_pattern)
        by_topic = None if self.queues_by_topic is None else dict(self.queues_by_topic)
        hidden = self.of_applications and topics is None

        def accept(topic: str) -> bool | frozenset[int]:
            if topics is not None and topic not in topics:
                return False
            if pattern is not None and not pattern(topic):
                return False
            if by_topic is not None:
                return by_topic.get(topic, False)
            if hidden and is_system_topic(topic):
                return False
            return True if queue_ids is None else queue_ids

        return accept


def _names(name: str, given: str | Iterable[str] | None) -> frozenset[str] | None:
    return None if given is None else frozenset(texts(name, given, "a name, or several"))


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


@functools.lru_cache(16)
def topic_test(pattern: str, option: str = "topic_pattern") -> Callable[[str], bool]:
    """Says of a name whether the pattern matches it as a whole. The test raises ValueError for a
    name that takes more than its steps.

    Raises:
        ValueError: It is no regular expression, or one that has no such test.
    """
    if len(pattern) > PATTERN_MAX:
        raise ValueError(
            f"{option} has {len(pattern)} characters; there may be {PATTERN_MAX}: "
            "choose topics by their names"
        )
    if (ranges := len(RANGE.findall(pattern))) > RANGES_MAX:
        raise ValueError(
            f"{option} has {ranges} ranges of characters beyond U+00FF; there may be {RANGES_MAX}: "
            "choose topics by their names"
        )
    try:
        whole = _pieces(pattern, re.compile(pattern).flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(
            f"{option} = {pattern!r}: a regular expression is wanted, without back references, "
            f"(?<= and atomic parts ({error})"
        ) from None
    return functools.partial(_takes, f"{option} = {pattern!r}", whole)


def _pieces(pattern: str, flags: int) -> Any:
    """The group of a whole pattern that `re` takes: its begin, and its ways, which are pieces one
    after the other. A piece is a group, a piece with how often it comes, or a function of `re`."""
    groups: list[tuple[str, list[list[Any]]]] = [("(", [[]])]
    for token in TOKEN.findall(pattern):
        ways = groups[-1][1]
        plain = token.removesuffix("?") or token
        if GROUP.fullmatch(token):
            groups.append((token, [[]]))
        elif token == ")":
            closed = groups.pop()
            groups[-1][1][-1].append(closed)
        elif token == "|":
            ways.append([])
        elif times := TIMES.fullmatch(SHORT.get(plain, plain)):
            least = int(times[1] or 0)
            most = int(times[3]) if times[3] else ENDLESS if times[2] else least
            ways[-1].append((ways[-1].pop(), least, most))
        else:
            ways[-1].append(re.compile(token, flags).match)
        if len(groups) > DEPTH_MAX:
            raise re.error(f"brackets nested deeper than {DEPTH_MAX}")
    return groups[0]


def _takes(shown: str, whole: Any, name: str) -> bool:
    left = STEPS_MAX * (len(name) + 100)

    def after(places: set[int], piece: Any) -> set[int]:
        nonlocal left
        left -= 1 + len(places)
        if left < 0:
            raise ValueError(f"{shown}: too dear for topic {name!r}; repeat less within repeats")
        match piece:
            case ("(?=" | "(?!" as kind, ways):
                return {p for p in places if bool(after({p}, ("(", ways))) == (kind == "(?=")}
            case (str(), ways):
                return set().union(*(functools.reduce(after, way, places) for way in ways))
            case (of, least, most):
                for _ in range(min(least, len(name) + 1)):  # more of them reach the same
                    places = after(places, of)
                reached = set(places)
                for _ in range(most - least):
                    if not (places := after(places, of) - reached):
                        break
                    reached |= places
                return reached
        return {found.end() for place in places if (found := piece(name, place))}

    return len(name) in after({0}, whole)
