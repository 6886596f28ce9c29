"""Stored offsets of consumer groups: `config/consumerOffset.json`, in RocketMQ's own form.

    {"offsetTable": {"topic@group": {"0": 5, "1": 7}}}

The number is the next queue offset that the group wants. Whatever else the file holds
(`dataVersion`, other groups, values that we do not understand) is carried over as it is. An
offset is stored only after the flushed position covers the end of the record before it, so
that a power cut cannot leave a group waiting beyond the log, where the messages put next would be
skipped (D-17).
"""

from __future__ import annotations

import json
import logging
import os
import re
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    BackpressureError,
    RocketStoreError,
    StoreClosedError,
    StoreReadOnlyError,
)
from rocketstore.log.layout.atomic_files import write_state_file
from rocketstore.log.layout.paths import check_group
from rocketstore.log.layout.rocketmq_json import read_json
from rocketstore.values.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = [
    "Clamped",
    "ConsumerOffsets",
    "FollowerOffsets",
    "GroupClaimedError",
    "recovered_offsets",
]

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 20
MAX_DEPTH = 8
QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
# RocketMQ's own bound of a queue offset: a signed 64-bit number.
MAX_OFFSET = (1 << 63) - 1


@public
class GroupClaimedError(RocketStoreError):
    """A group has a live consumer of this topic; two would overwrite each other's offsets."""

    status = "SERVICE_NOT_AVAILABLE"

    def __init__(self, topic: str, group: str) -> None:
        super().__init__(topic, group)
        self.topic = topic
        self.group = group

    def __str__(self) -> str:
        return (
            f"group {self.group!r} already has a live consumer of topic {self.topic!r}; "
            "close that one first, or use another group"
        )


@dataclass(frozen=True, slots=True)
class Clamped:
    """A stored offset that pointed beyond its queue and was set back at open."""

    topic: str
    group: str
    queue_id: int
    stored: int
    maximum: int


class ConsumerOffsets:
    """The table of one store. Any thread may use it; each change replaces the file atomically."""

    def __init__(self, layout: StoreLayout, *, read_only: bool = False) -> None:
        self._layout = layout
        self._read_only = read_only
        # Guards the table, the claims and the file; never held while anyone waits for a flush. A
        # signal's handler may come inside: a table is replaced, never changed.
        self._turn = SignalSafeLock()
        self._document: dict[str, object] = {}
        self._claims: dict[str, weakref.ref[object]] = {}
        # Groups by topic, those of any by None, and the table that they are in.
        self._named: tuple[dict[str, object], dict[str | None, tuple[str, ...]]] = {}, {}
        # The largest offset of each queue, and the table that they are in.
        self._floors: tuple[dict[str, object], dict[tuple[str, int], int]] = {}, {}

    def load(self) -> None:
        """Reads the file, or its `.bak`; one that is no use is reported and counts as empty."""
        document = read_json(self._layout.consumer_offsets, MAX_FILE_BYTES, MAX_DEPTH)
        path = self._layout.consumer_offsets
        if document is None:
            document = {}
        if not isinstance(document, dict):
            logger.warning("%s is not an object; it counts as empty", path)
            document = {}
        if not isinstance(document.get("offsetTable", {}), dict):
            logger.warning("%s: offsetTable is not an object; it counts as empty", path)
            document = {**document, "offsetTable": {}}
        with self._turn:
            self._document = document

    def get(self, topic: str, group: str) -> dict[int, int]:
        """Stored next offsets by queue id; empty for a group that never committed."""
        with self._turn:
            return dict(_offsets_of(self._table().get(f"{topic}@{group}")))

    def groups(self, topic: str | None = None) -> tuple[str, ...]:
        """Groups with stored offsets, of a topic or of any, sorted."""
        with self._turn:
            table = self._table()
            if table is not self._named[0]:
                self._named = table, _groups_in(table)
            return self._named[1].get(topic, ())

    def highest(self, topic: str, queue_id: int) -> int:
        """The largest offset stored for a queue: a floor of its next offset (D-17)."""
        with self._turn:
            table = self._table()
            if table is not self._floors[0]:  # once for all queues, each of which asks
                self._floors = table, _floors_in(table)
            return self._floors[1].get((topic, queue_id), 0)

    def claim(self, topic: str, group: str, owner: object) -> None:
        """Makes `owner` the only consumer of (group, topic), until `release` or its collection."""
        if self._read_only:
            return  # a reader sees what every writer has stored, and owns nothing
        check_group(group)
        key = f"{topic}@{group}"
        with self._turn:
            mine = weakref.ref(owner)
            held = self._claims.setdefault(key, mine)
            living = held()
            if living is not None and living is not owner:
                raise GroupClaimedError(topic, group)
            self._claims[key] = mine

    def release(self, topic: str, group: str, owner: object) -> None:
        """Gives a claim back; nothing happens when `owner` does not hold it."""
        key = f"{topic}@{group}"
        with self._turn:
            if self._holds(key, owner):
                self._claims.pop(key, None)

    def _holds(self, key: str, owner: object) -> bool:
        held = self._claims.get(key)
        return held is not None and held() is owner

    def check_writable(self) -> None:
        if self._read_only:
            raise StoreReadOnlyError(
                "offsets cannot be committed: the store is open with mode='r', and a group belongs "
                "to the process that has it open for writing; "
                "keep the consumer's `positions` yourself"
            )

    def commit(
        self,
        topic: str,
        group: str,
        offsets: Mapping[int, int],
        physical_end: int,
        wait_flushed: Callable[[int], object],
        owner: object = None,
    ) -> None:
        """Stores next offsets by queue id, durably, after `wait_flushed(physical_end)`.

        `physical_end` is the end of the furthest record that the offsets step over. Whatever the
        wait raises is raised, and nothing is stored then. `owner`: the consumer that has claimed
        the group.

        Raises:
            StoreClosedError: the owner has given the group back while this waited; it may be
                another's.
            BackpressureError: in a signal's handler that came while its own thread stores offsets,
                which would write over these.
        """
        self.check_writable()
        check_group(group)
        for queue_id, offset in offsets.items():
            if not 0 <= offset <= MAX_OFFSET or queue_id < 0:
                raise ValueError(f"queue {queue_id}: offset {offset} cannot be stored")
        wait_flushed(physical_end)
        key = f"{topic}@{group}"
        with self._turn as nested:
            if nested:
                raise BackpressureError(
                    f"offsets of group {group!r}: this thread is at work on stored offsets "
                    "already, try again outside the signal handler"
                )
            if owner is not None and not self._holds(key, owner):
                raise StoreClosedError(
                    f"nothing was stored for group {group!r}: the consumer was closed while it "
                    "committed, and the group may have another one by now"
                )
            table = self._table()
            row = table.get(key)
            changed = dict(row) if isinstance(row, dict) else {}
            changed.update({str(queue_id): offset for queue_id, offset in offsets.items()})
            self._replace({**table, key: changed})

    def clamp(self, maximum: Callable[[str, int], int | None]) -> list[Clamped]:
        """At open: sets offsets beyond their queue's end back to it and stores that, before the
        first put; in a store that is only read it holds in memory.

        `maximum(topic, queue_id)` is None for a queue of which nothing is known; its offsets stay.
        """
        clamped = []
        with self._turn:
            table = {key: dict(row) for key, row in self._table().items() if isinstance(row, dict)}
            for topic, group, queue_id, offset in _rows_of(self._table()):
                limit = maximum(topic, queue_id)
                if limit is not None and offset > limit:
                    clamped.append(Clamped(topic, group, queue_id, offset, limit))
                    table[f"{topic}@{group}"][str(queue_id)] = limit
            if clamped:
                self._replace({**self._table(), **table})
        for change in clamped:
            logger.warning(
                "group %s had stored offset %d of %s/%d, which ends at %d: set back",
                change.group,
                change.stored,
                change.topic,
                change.queue_id,
                change.maximum,
            )
        return clamped

    def _table(self) -> dict[str, object]:
        table = self._document.get("offsetTable")
        return table if isinstance(table, dict) else {}

    def _replace(self, table: dict[str, object]) -> None:
        """Writes the file, unless the store is only read, then takes the new table over; what
        cannot be written does not count."""
        document = {**self._document, "offsetTable": table}
        if not self._read_only:
            text = json.dumps(document, ensure_ascii=False, indent="\t")
            write_state_file(self._layout, self._layout.consumer_offsets, text)
        self._document = document


class FollowerOffsets(ConsumerOffsets):
    """The table of a store that another process may write: read again when its file is another
    one."""

    def __init__(self, layout: StoreLayout) -> None:
        super().__init__(layout, read_only=True)
        self._seen: tuple[int, int, int] | None = None

    def get(self, topic: str, group: str) -> dict[int, int]:
        self.look()
        return super().get(topic, group)

    def groups(self, topic: str | None = None) -> tuple[str, ...]:
        self.look()
        return super().groups(topic)

    def look(self) -> None:
        """A writer replaces the file; RocketMQ moves it away before it puts the next one there."""
        try:
            found = os.stat(self._layout.consumer_offsets)
            seen = found.st_ino, found.st_mtime_ns, found.st_size
        except FileNotFoundError:
            seen = 0, 0, 0
        if seen != self._seen:
            self.load()
            self._seen = seen  # last: other threads ask meanwhile


def _split(key: str) -> tuple[str, str] | None:
    """Topic and group of a key; neither can hold the sign between them."""
    topic, separator, group = key.partition("@")
    return (topic, group) if separator and topic and group and "@" not in group else None


def _groups_in(table: dict[str, object]) -> dict[str | None, tuple[str, ...]]:
    """Groups with stored offsets, sorted, by topic; those of any topic by None."""
    found: dict[str | None, set[str]] = {}
    for topic, group in filter(None, map(_split, table)):
        for of in (topic, None):
            found.setdefault(of, set()).add(group)
    return {of: tuple(sorted(groups)) for of, groups in found.items()}


def _floors_in(table: dict[str, object]) -> dict[tuple[str, int], int]:
    """The largest offset that any group has stored, by topic and queue id."""
    found: dict[tuple[str, int], int] = {}
    for topic, _, queue_id, offset in _rows_of(table):
        found[topic, queue_id] = max(offset, found.get((topic, queue_id), 0))
    return found


def _rows_of(table: dict[str, object]) -> Iterator[tuple[str, str, int, int]]:
    """Topic, group, queue id and offset of all that makes sense."""
    for key, row in table.items():
        pair = _split(key)
        if pair is not None:
            for queue_id, offset in _offsets_of(row):
                yield *pair, queue_id, offset


def _offsets_of(row: object) -> Iterator[tuple[int, int]]:
    """Queue ids and offsets that make sense; anything else in a row is left alone."""
    if not isinstance(row, dict):
        return
    for queue_id, offset in row.items():
        if not isinstance(queue_id, str) or QUEUE_ID.fullmatch(queue_id) is None:
            continue
        if int(queue_id) < 1 << 31 and type(offset) is int and 0 <= offset <= MAX_OFFSET:
            yield int(queue_id), offset


def recovered_offsets(
    layout: StoreLayout, queues: ConsumeQueueStore, *, read_only: bool
) -> ConsumerOffsets:
    """The offsets of a store whose queues are recovered, none after the end of its queue
    (D-17)."""
    offsets = ConsumerOffsets(layout, read_only=read_only)
    offsets.load()

    def end_of(topic: str, queue_id: int) -> int | None:
        queue = queues.get(topic, queue_id)
        return None if queue is None else queue.max_offset

    offsets.clamp(end_of)
    return offsets
