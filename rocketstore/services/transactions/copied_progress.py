"""What a copy of a store does about transactions when it is promoted.

The progress of transactions comes from the master, as offsets of groups, once the copy has all of the
log that it speaks of. So it is right for the log as it was, and for any longer one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.consuming.offset_tables import split_key
from rocketstore.services.transactions import commit_records
from rocketstore.services.transactions.commit_records import commit_record_of
from rocketstore.services.transactions.reading import Unreadable, messages_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.services.transactions.commit_records import CommitRecord

__all__ = ["store_committed_offsets"]

COMMITS: str = commit_records.TOPIC


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
