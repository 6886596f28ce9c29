"""Messages by key: what the index proposes, proven by the records.

The index holds 31 bits of a hash and whole seconds, so it proposes records of other keys and other
times. A record is an answer only if it begins at that offset, has the topic, and names the key
itself (format 7.6).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from rocketstore.errors import CorruptRecordError, MessageNotFoundError, OffsetOutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketstore._native.format.message import Message
    from rocketstore.log.read.reader import Reader

__all__ = ["KeyIndex", "query_by_key"]

logger = logging.getLogger(__name__)

#: First and largest number of candidates per query; it grows by four while other keys' hashes fill
#: it.
CANDIDATES = 64
MAX_CANDIDATES = 1 << 20
LAST_MS = (1 << 63) - 1


class KeyIndex(Protocol):
    """The part of the key index that a query needs."""

    def query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int, /
    ) -> Sequence[int]:
        """Offsets of up to `limit` candidates whose time may fit, newest first, none twice."""
        ...


def query_by_key(
    reader: Reader,
    index: KeyIndex,
    topic: str,
    key: str,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    limit: int = 32,
) -> list[Message]:
    """The newest messages of a topic with a key, newest first, each once; at most `limit`.

    A key is one of a message's keys or its unique id. Only messages stored within
    [begin_ms, end_ms] by their own store time.
    """
    first_ms = 0 if begin_ms is None else begin_ms
    last_ms = LAST_MS if end_ms is None else end_ms
    reader.source.check()
    reader.source.catch_up()
    answers: list[Message] = []
    seen: set[int] = set()
    asked = CANDIDATES
    while True:
        candidates = index.query(topic, key, first_ms, last_ms, asked)
        for physical_offset in candidates:
            if physical_offset in seen:
                continue
            seen.add(physical_offset)
            message = _prove(reader, physical_offset, topic, key)
            if message is not None and first_ms <= message.store_timestamp_ms <= last_ms:
                answers.append(message)
                if len(answers) == limit:
                    return answers
        if len(candidates) < asked or asked >= MAX_CANDIDATES:
            return answers
        asked *= 4


def _prove(reader: Reader, physical_offset: int, topic: str, key: str) -> Message | None:
    """The message at a candidate's offset if it is an answer. Leaves out a damaged one, with a
    warning, so that it does not hide the others; `get` of its offset says what is wrong."""
    try:
        message = reader.get(physical_offset, verify=0)
    except (MessageNotFoundError, OffsetOutOfRangeError, CorruptRecordError) as error:
        logger.debug("index of %s points to %d: %s", topic, physical_offset, error)
        return None
    if message.topic != topic or (key != message.unique_id and key not in message.keys):
        return None
    try:
        return reader.get(physical_offset)
    except OffsetOutOfRangeError:
        return None  # trimmed away meanwhile
    except CorruptRecordError as error:
        logger.warning("key %r of %s: an answer is damaged and left out: %s", key, topic, error)
        return None
