"""Messages by key: what the index proposes, proven by the records.

The index holds 31 bits of a hash and whole seconds, so it proposes records of other keys and other
times. A record is an answer only if it begins at that offset, has the topic, and names the key
itself (format 7.6).
"""

from __future__ import annotations

import itertools
import logging
import operator
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, SupportsIndex, overload

from rocketstore._native.format.message import Message
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    ConfigError,
    CorruptRecordError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    ReadFailedError,
)
from rocketstore.log.read.fetch_result import OFFSET_TOO_SMALL
from rocketstore.log.read.reader import Reader
from rocketstore.values.arguments import one_of, text, whole_number
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.timestamps import Timestamp, timestamp_ms

__all__ = ["Answers", "KeyIndex", "KeyQuery", "answers_of", "key_query", "query_by_key"]

logger = logging.getLogger(__name__)

INT64_MAX: Final = 2**63 - 1


class KeyIndex(Protocol):
    """The part of the key index that a query needs."""

    def candidates(
        self, topic: str, key: str, begin_ms: int, end_ms: int, /, *, newest: bool
    ) -> Iterator[int]:
        """Offsets of records whose key and time may fit, newest or oldest first; some may come
        again."""
        ...


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """What is asked for: a topic, a key or unique id, store times `begin_ms` … `end_ms`, physical
    offsets above one and below another."""

    topic: str
    key: str
    begin_ms: int = 0
    end_ms: int = INT64_MAX
    newest: bool = True
    above: int = -1
    below: int = INT64_MAX


def key_query(
    topic: str,
    key: str,
    begin: Timestamp | None,
    end: Timestamp | None,
    order: str,
    below: int | None,
    above: int | None,
) -> KeyQuery:
    """The query that these arguments of a user mean.

    Raises: ValueError, TypeError: one has no meaning."""
    begin_ms = 0 if begin is None else timestamp_ms("begin", begin)
    end_ms = INT64_MAX if end is None else timestamp_ms("end", end)
    if begin is not None and end_ms < begin_ms:
        raise ValueError(f"end = {end}: before begin = {begin}")
    one_of("order", order, ("newest", "oldest"))
    lowest = -1 if above is None else whole_number("above", above, 0)
    highest = INT64_MAX if below is None else whole_number("below", below, 0)
    if above is not None and below is not None and below <= above:
        raise ValueError(f"below = {below}: no offset is below it and above above = {above}")
    topic, key = text("topic", topic), text("key", key)
    return KeyQuery(topic, key, begin_ms, end_ms, order == "newest", lowest, highest)


def query_by_key(
    reader: Reader,
    index: KeyIndex,
    query: KeyQuery,
    on_damage: Callable[[CorruptRecordError], object] | None = None,
) -> Iterator[Message]:
    """The messages of a topic with a key, each once, looked up as they are asked for. `on_damage`
    gets each record that the index proposes and that does not hold, once.

    Raises: ReadFailedError: without `on_damage`, after the last message: an entry points beyond the
        log, where nothing of that record is left that shows whether it was an answer."""
    damaged: dict[int, str] = {}

    def told(error: CorruptRecordError) -> None:
        damaged[physical_offset] = error.reason
        if on_damage is not None:
            on_damage(error)

    reader.source.check()
    reader.source.catch_up()
    above, below = query.above, query.below
    found = index.candidates(
        query.topic, query.key, query.begin_ms, query.end_ms, newest=query.newest
    )
    for physical_offset in found:
        # One beyond the log is no repetition: it says that the index is damaged.
        new = above < physical_offset < below
        if physical_offset in damaged or not (new or physical_offset >= reader.source.visible()):
            continue
        message = _prove(reader, physical_offset, query.topic, query.key, told)
        if not (
            message is not None
            and new
            and query.begin_ms <= message.store_timestamp_ms <= query.end_ms
        ):
            continue
        # Offsets in the index do not fall, so what is proven bounds what is new.
        if query.newest:
            below = physical_offset
        else:
            above = physical_offset
        yield message
    if on_damage is None and "end" in damaged.values():
        raise ReadFailedError(
            f"the index has an entry for {query.key!r} that points beyond the log: which message "
            "has the key is not known; 'rocketstore rebuild' makes the index again, and on_damage "
            "leaves the entry out"
        )


def answers_of(
    reader: Reader,
    index: KeyIndex | None,
    query: KeyQuery,
    limit: int | None,
    must_exist: bool,
    on_damage: Callable[[CorruptRecordError], object] | None,
) -> Sequence[Message]:
    """At most `limit` messages, or all of them as they are asked for. Says in the log when there
    are none because the topic is not there.

    Raises:
        ValueError, TypeError: `limit` or `must_exist` has no meaning.
        ConfigError: the store has no index.
        InvalidTopicError, QueueNotFoundError: as `Reader.look_for`.
    """
    if limit is not None and whole_number("limit", limit) < 1:
        raise ValueError(f"limit = {limit}: 1 or more, or None for all messages")
    if index is None:
        raise ConfigError("index_enabled", False, "a query by key needs the index")
    one_of("must_exist", must_exist, (True, False))
    reader.look_for(query.topic, must_exist=must_exist)
    found = query_by_key(reader, index, query, on_damage)
    every = limit is None
    answers = Answers(query, found, reader) if every else list(itertools.islice(found, limit))
    if not answers:
        reader.tell_missing(query.topic)
    return answers


class Answers(Sequence[Message]):
    """The messages of a query, looked up as they are asked for: a sequence that keeps an offset of
    each, 8 bytes, and no message. The first one is looked up at once. Any thread may use it."""

    def __init__(self, query: KeyQuery, found: Iterator[Message], reader: Reader) -> None:
        self._query = query
        self._found = found
        self._reader = reader
        self._offsets = array("q")
        self._lock = SignalSafeLock("a query", reentrant=False)
        self._whole = False
        self._error: Exception | None = None
        self._have(1)

    def _have(self, count: int | None) -> None:
        """Looks up until there are `count` answers, or all."""
        with self._lock():
            while not self._whole and (count is None or len(self._offsets) < count):
                if self._error is not None:
                    raise self._error  # the rest is not known: no end of the answers
                try:
                    message = next(self._found, None)
                except Exception as error:
                    self._error = without_frames(error)
                    raise
                if message is None:
                    self._whole = True
                else:
                    self._offsets.append(message.physical_offset)

    def __len__(self) -> int:
        self._have(None)
        return len(self._offsets)

    def __bool__(self) -> bool:
        return bool(self._offsets)

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> list[Message]: ...
    def __getitem__(self, at: int | slice) -> Message | list[Message]:
        if isinstance(at, slice):
            at = slice(*map(_plain, (at.start, at.stop, at.step)))
            from_end = any(one is not None and one < 0 for one in (at.start, at.stop, at.step))
            self._have(None if from_end or at.stop is None else at.stop)
            return [self._reader.get(offset) for offset in self._offsets[at]]
        number = operator.index(at)
        self._have(None if number < 0 else number + 1)
        try:
            offset = self._offsets[number]
        except IndexError:
            raise IndexError(f"message {number} of {len(self._offsets)}") from None
        return self._reader.get(offset)

    def __iter__(self) -> Iterator[Message]:
        for number in itertools.count():
            self._have(number + 1)
            if number >= len(self._offsets):
                return
            yield self._reader.get(self._offsets[number])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)

    def __repr__(self) -> str:
        known = f"{len(self._offsets)}{'' if self._whole else ' or more'}"
        return f"<{known} messages of {self._query.topic!r} with key {self._query.key!r}>"


def _plain(number: SupportsIndex | None) -> int | None:
    return None if number is None else operator.index(number)


def _prove(
    reader: Reader,
    physical_offset: int,
    topic: str,
    key: str,
    on_damage: Callable[[CorruptRecordError], object],
) -> Message | None:
    """The message at a candidate's offset if it is an answer. Leaves out one that is damaged or
    missing, with a warning, so that it does not hide the others. Nobody knows of it whether it is an
    answer: what it says of its topic and keys may be what is damaged."""
    try:
        message = reader.get(physical_offset)
    except OffsetOutOfRangeError as error:
        if error.status == OFFSET_TOO_SMALL:  # trimmed
            logger.debug("index of %s points to %d: %s", topic, physical_offset, error)
            return None
        lost = CorruptRecordError(physical_offset, "end")
        logger.warning("key %r of %s: a message is missing: %s", key, topic, lost)
        on_damage(lost)
        return None
    except (MessageNotFoundError, CorruptRecordError) as error:
        damage = error if isinstance(error, CorruptRecordError) else error.__cause__
        logger.warning("key %r of %s: a record is damaged and left out: %s", key, topic, error)
        if isinstance(damage, CorruptRecordError):
            on_damage(damage)
        return None
    if message.topic != topic or (key != message.unique_id and key not in message.keys):
        return None
    return message
