"""The latest message of each key goes to the end of the log before its segment goes.

No copy hides a message. Under the append lock the log notes which keys are put from a moment on
(`KeyWatch`). What was put before it is looked at, and then a copy is put only if its key was not
noted. So between the message and its copy there is no other one of the key, in any queue.

After a crash both may be there, or a copy without the rest. The message is not the latest of its key
any more then, so it is not copied again; what has no copy has its segment, since a trim flushes all
of the log before it removes anything.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection
from typing import Final

from rocketstore._native.append.key_watch import KeyWatch
from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import MissingSegmentsError, StoreClosedError
from rocketstore.puts.put_message import put_message
from rocketstore.scanning.latest_keys import COLUMNS, MARK_BITS, TOMBSTONE, LatestKeys
from rocketstore.scanning.scan import Scan
from rocketstore.values.record_filter import RecordFilter

__all__ = ["LatestMessages"]

#: Messages that are put for one flush of the log, and one look at what was put meanwhile.
BATCH: Final = 1000


class LatestMessages:
    """The latest message of each key of some topics. It remembers how far it has looked, so that
    each part of the log is looked at once. One thread at a time."""

    def __init__(self, engine: Engine, topics: Collection[str], over: Callable[[], bool]) -> None:
        """`over`: whether the store closes, and nothing is looked at any more."""
        self.topics, self._over = topics, over
        self._engine = engine
        self._keys, self._seen = LatestKeys(), 0

    def too_many(self, end: int) -> str:
        """Why the segments below `end` stay: more than half of their bytes would be put again. So
        copies are never more bytes than what is freed by them, nor than what programs put. "": they
        may go."""
        most = (end - self._engine.begin_offset) // 2
        for offset in self._offsets(end):
            most -= self._engine.reader.get(offset).size
            if most < 0:
                return f"more than half of them is the latest of its key, of {self._names}"
        return ""

    def put_again(self, engine: WritingEngine, end: int) -> str:
        """Puts the latest messages below `end` again, durable with what is put later. Why some are
        left: a key was put meanwhile, or many were.

        Raises:
            DiskFullError, BackpressureError, MessageRejectedError and its kin: a message cannot be
                put.
            CorruptRecordError, ReadFailedError: one cannot be read.
            MissingSegmentsError: later messages may be missing.
        """
        whole, left = True, self._offsets(end)
        # The next round goes on where programs put more meanwhile than what is to go.
        limit = engine.positions.wrote + end - engine.begin_offset
        while left and engine.positions.wrote < limit:
            with KeyWatch(engine.commit_log.log, secrets.randbits(64)) as wrote:
                engine.wait_flushed(wrote, None)
                for offset in sorted({*left[:BATCH]}.intersection(self._offsets(end, wrote))):
                    whole = self._put(engine, offset) and whole
            del left[:BATCH]
        return "" if whole and not left else "a key in it is put at this moment"

    @property
    def _names(self) -> str:
        return ", ".join(self.topics)

    def _offsets(self, end: int, known: int = 0) -> list[int]:
        """Physical offsets of the messages below `end` that are the latest of their key, rising.
        `known`: what lies below is on the disk."""
        if not self.topics:
            return []
        if self._engine.recovery.missing:
            raise MissingSegmentsError(f"{'; '.join(self._engine.recovery.missing)}: later "
                                       f"messages of {self._names} may be missing")  # fmt: skip
        layout, begin, visible = self._engine.log_bounds()
        limit, start = max(visible, known), max(begin, self._seen)
        scan = Scan(
            path=os.fspath(layout.root),
            begin_offset=start,
            end_offset=max(start, limit),
            limit_offset=max(start, limit),
            columns=COLUMNS,
            filter=RecordFilter.of(topics=frozenset(self.topics)),
            whole=True,
            log_directories=tuple(map(os.fspath, layout.log_directories)),
        )
        for chunk in scan:
            if self._over():
                raise StoreClosedError("the store closes: retention has ended")
            self._keys.take_up(chunk, 0)
        self._seen = scan.end_offset
        marks = self._keys.between(begin << MARK_BITS, end << MARK_BITS)
        found: list[int] = (marks[marks & TOMBSTONE == 0] >> MARK_BITS).tolist()
        return found

    def _put(self, engine: WritingEngine, offset: int) -> bool:
        """Whether it was put: it is the latest of its key."""
        message = engine.reader.get(offset)
        put = put_message(
            *(engine, message.topic, message.body_view, message.queue_id, message.properties),
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_time=message.born_timestamp_ms,
            born_host=message.born_host,
            store_host=message.store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            delay_level=0,
            expected=None,
            only_latest=True,
            durability="memory",  # the trim waits for all of the log
            timeout_s=None,
        )
        return put.count > 0
