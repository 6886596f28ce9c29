"""What a copy of a store does about transactions: where its log is cut, and when it is promoted.

The progress of transactions comes from the master, as offsets of groups, once the copy has all of the
log that it speaks of. So it is right for the log as it was, and for any longer one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketstore.consuming.offset_tables import split_key
from rocketstore.errors import RocketStoreError
from rocketstore.services.transactions import commit_records, half_messages
from rocketstore.services.transactions.commit_records import commit_record_of
from rocketstore.services.transactions.copies import first_above
from rocketstore.services.transactions.reading import Unreadable, messages_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.services.transactions.commit_records import CommitRecord

__all__ = ["set_progress_back", "store_committed_offsets"]

logger = logging.getLogger(__name__)

COMMITS: str = commit_records.TOPIC
COMMITS_KEY = f"{COMMITS}@{commit_records.PROGRESS_GROUP}"


def set_progress_back(engine: WritingEngine, end: int) -> None:
    """Before the log is cut at `end`: op messages above it settle nothing any more, and of the last
    commit record below it copies may be missing. Less progress costs reading, no message.

    Raises:
        OSError: the offsets cannot be stored.
    """
    groups: dict[str, dict[int, int]] = {
        f"{topic}@{half_messages.PROGRESS_GROUP}": {}
        for topic in (half_messages.HALF_TOPIC, half_messages.OP_TOPIC)
    }
    stored = _progress(engine)
    if stored:
        groups[COMMITS_KEY] = {}
        try:
            engine.reader.source.catch_up()
            last = first_above(engine.reader, COMMITS, 0, end) - 1
            groups[COMMITS_KEY] = {0: min(stored, max(0, last))}
        except RocketStoreError as error:
            logger.warning("%s: all commits of transactions are read: %s", engine.path, error)
    engine.offsets.take_from_master(groups, whole=False)


def store_committed_offsets(engine: WritingEngine) -> None:
    """At the promotion of a copy: what transactions committed after the offsets came that the copy has.
    The offsets before them may never have come, so unlike after a crash these count whatever is
    stored.

    Raises:
        ReadFailedError, StoreBehindError: the commits cannot be read.
        OSError: the offsets cannot be stored.
    """
    moved: dict[str, dict[int, int]] = {}
    for record in _records(engine):
        for move in record.moves:
            pair = split_key(move.key)
            if pair is not None:
                row = moved.setdefault(move.key, engine.offsets.get(*pair))
                row[move.queue_id] = move.now
    engine.offsets.take_from_master(moved, whole=False)


def _records(engine: WritingEngine) -> Iterator[CommitRecord]:
    """Those that may not be done, in their order."""
    reader = engine.reader
    reader.source.catch_up()
    if reader.source.queue(COMMITS, 0) is None:
        return
    minimum, maximum = reader.bounds(COMMITS, 0)
    begin = max(_progress(engine), minimum)
    if begin >= maximum:
        return
    for message in messages_from(reader, COMMITS, 0, begin):
        record = None if isinstance(message, Unreadable) else commit_record_of(message)
        if record is not None:  # the next open as a master logs what it passes over
            yield record


def _progress(engine: WritingEngine) -> int:
    return engine.offsets.get(COMMITS, commit_records.PROGRESS_GROUP).get(0, 0)
