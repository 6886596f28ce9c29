"""Stored offsets of consumer groups: `config/consumerOffset.json`, in RocketMQ's own form.

    {"offsetTable": {"topic@group": {"0": 5, "1": 7}}}

A commit goes to the journal of `commit_journal` first, and is merged into the file soon.

The number is the next queue offset that the group wants. Whatever else the file holds
(`dataVersion`, other groups, values that we do not understand) is carried over as it is. An
offset is stored only after the flushed position covers the end of the record before it, so
that a power cut cannot leave a group waiting beyond the log, where the messages put next would be
skipped (D-17).
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import weakref
from typing import TYPE_CHECKING

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.consuming.commit_journal import CommitJournal, Moved, read_journal
from rocketstore.consuming.group_claims import Claim, GroupClaimedError
from rocketstore.errors import (
    BackpressureError,
    StoreClosedError,
    StoreReadOnlyError,
)
from rocketstore.log.layout.atomic_files import write_state_file
from rocketstore.log.layout.paths import check_group
from rocketstore.log.layout.rocketmq_json import read_json
from rocketstore.log.recovery.quarantine import keep_state_file
from rocketstore.log.recovery.report import OffsetSetBack

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = [
    "ConsumerOffsets",
    "entries_without_sense",
    "recovered_offsets",
]

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 64 << 20
MAX_DEPTH = 8
#: A commit is in RocketMQ's file after this long.
MERGE_EVERY_S = 5.0
QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
# RocketMQ's own bound of a queue offset: a signed 64-bit number.
MAX_OFFSET = (1 << 63) - 1


class ConsumerOffsets:
    """The table of one store. Any thread may use it; each change replaces the file atomically."""

    def __init__(self, layout: StoreLayout, *, read_only: bool = False) -> None:
        self._layout = layout
        self._read_only = read_only
        # Guards the table, the claims and the file; never held while anyone waits for a flush. A
        # signal's handler may come inside: a table is replaced, never changed.
        self._turn = SignalSafeLock()
        self._document: dict[str, object] = {}
        self._journal = CommitJournal(layout.group_offsets)
        # The table as RocketMQ's file has it, and when the first commit came that it lacks.
        self._merged: dict[str, object] = {}
        self._unmerged_since_s: float | None = None
        self._claims: dict[str, tuple[Claim, ...]] = {}
        #: Queues by "topic@group" of which a transaction is about to store offsets; replaced, never
        #: changed, by the service that commits it.
        self.moving: Mapping[str, tuple[int, ...]] = {}
        # Groups by topic, those of any by None, and the table that they are in.
        self._named: tuple[dict[str, object], dict[str | None, tuple[str, ...]]] = {}, {}
        #: Offsets that `clamp` set back.
        self.set_back: tuple[OffsetSetBack, ...] = ()
        # The largest offset of each queue, and the table that they are in.
        self._floors: tuple[dict[str, object], dict[tuple[str, int], int]] = {}, {}

    def load(self) -> None:
        """Reads the file, or its `.bak`; one that is no use is reported and counts as empty."""
        # In front of the file: a merge between the two looks leaves the file as the newer one.
        commits = read_journal(self._layout.group_offsets)
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
        merged = document.get("offsetTable", {})
        table = _with_commits(merged, commits)
        newer = table != merged
        with self._turn:
            self._document = {**document, "offsetTable": table} if newer else document
            self._merged = merged
            self._unmerged_since_s = 0.0 if newer else None

    def get(self, topic: str, group: str) -> dict[int, int]:
        """Stored next offsets by queue id; empty for a group that never committed."""
        with self._turn:
            return dict(_offsets_of(self._table().get(f"{topic}@{group}")))

    def warn_of(self, topic: str, group: str) -> None:
        """Called when a consumer of the group begins: it starts over where the file holds no
        offset."""
        with self._turn:
            found = entries_without_sense(self._table(), f"{topic}@{group}")
        for entry in found:
            logger.warning(
                "%s: %s: no offset; group %s starts there as if it had committed none",
                self._layout.consumer_offsets,
                entry,
                group,
            )

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

    def claim(
        self, topic: str, group: str, owner: object, queue_ids: tuple[int, ...] | None = None
    ) -> None:
        """Makes `owner` the only consumer of some queues of (group, topic), or of all of its queues,
        until `release` or its collection."""
        if self._read_only:
            return  # a reader sees what every writer has stored, and owns nothing
        check_group(group)
        key = f"{topic}@{group}"
        with self._turn:
            others = [
                held
                for held in self._claims.get(key, ())
                if held.owner() is not None and held.owner() is not owner
            ]
            for held in others:
                if held.meets(queue_ids):
                    raise GroupClaimedError(topic, group, str(held))
            moving = self.moving.get(key, ())
            if moving and (queue_ids is None or not set(moving).isdisjoint(queue_ids)):
                raise GroupClaimedError(topic, group, "a transaction that is not on disk yet")
            thread = threading.current_thread().name
            self._claims[key] = (*others, Claim(queue_ids, weakref.ref(owner), thread))

    def release(self, topic: str, group: str, owner: object) -> None:
        """Gives a claim back; nothing happens when `owner` does not hold it."""
        key = f"{topic}@{group}"
        with self._turn:
            left = tuple(held for held in self._claims.get(key, ()) if held.owner() is not owner)
            if left:
                self._claims[key] = left
            else:
                self._claims.pop(key, None)

    def holds(self, key: str, owner: object) -> bool:
        """Whether `owner` has claimed queues of "topic@group"."""
        return any(held.owner() is owner for held in self._claims.get(key, ()))

    @property
    def unsynced(self) -> bool:
        """Whether a commit of any group may be lost with the power, until the next one that is
        synced."""
        return self._journal.unsynced

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
        *,
        sync: bool = True,
    ) -> None:
        """Stores next offsets by queue id, durably, after `wait_flushed(physical_end)`. Without
        `sync` they survive the process, and the log need not be flushed: open sets offsets beyond
        the end of a queue back.

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
        if sync:
            wait_flushed(physical_end)
        key = f"{topic}@{group}"
        with self._turn as nested:
            if nested:
                raise BackpressureError(
                    f"offsets of group {group!r}: this thread is at work on stored offsets "
                    "already, try again outside the signal handler"
                )
            if owner is not None and not self.holds(key, owner):
                raise StoreClosedError(
                    f"nothing was stored for group {group!r}: the consumer was closed while it "
                    "committed, and the group may have another one by now"
                )
            table = self._table()
            row = table.get(key)
            changed = dict(row) if isinstance(row, dict) else {}
            changed.update({str(queue_id): offset for queue_id, offset in offsets.items()})
            named = {(key, queue_id): offset for queue_id, offset in offsets.items()}
            self._add({**table, key: changed}, named, sync=sync)

    def commit_moves(self, moves: Iterable[Moved]) -> None:
        """Stores offsets of any groups with one record of the journal, all or none. An offset counts
        where the table holds what the move found there. The caller has them in the log, durably, so
        the record is not synced.

        Raises:
            BackpressureError: as `commit`.
            DiskFullError, OSError: nothing is stored.
        """
        with self._turn as nested:
            if nested:
                raise BackpressureError(
                    "offsets of a transaction: this thread is at work on stored offsets already, "
                    "try again outside the signal handler"
                )
            table = dict(self._table())
            changed: dict[tuple[str, int], int] = {}
            for key, queue_id, was, now in moves:
                row = table.get(key)
                held = row if isinstance(row, dict) else {}
                if dict(_offsets_of(held)).get(queue_id) == was:
                    table[key] = {**held, str(queue_id): now}
                    changed[key, queue_id] = now
            if changed:
                self._add(table, changed, sync=False)

    def sync(self) -> None:
        """Makes all commits durable."""
        with self._turn:
            self._journal.sync()

    def _add(
        self, table: dict[str, object], offsets: Mapping[tuple[str, int], int], *, sync: bool
    ) -> None:
        """Takes a table over that differs in these offsets, once they are in a file."""
        base = {key: dict(_offsets_of(self._merged.get(key))) for key, _ in offsets}
        moved = [Moved(*place, base[place[0]].get(place[1]), now) for place, now in offsets.items()]
        if not self._journal.add(moved, sync=sync):
            self._replace(table)
            return
        self._document = {**self._document, "offsetTable": table}
        if self._unmerged_since_s is None:
            self._unmerged_since_s = time.monotonic()

    def merge(self, *, older_than_s: float = 0.0) -> None:
        """Brings RocketMQ's file up to date if it has lacked a commit for so long.

        Raises:
            OSError: it cannot be written; the journal still has what it lacks.
        """
        with self._turn as nested:
            since_s = self._unmerged_since_s
            if nested or self._read_only or since_s is None:
                return
            if time.monotonic() - since_s >= older_than_s:
                self._replace(self._table())

    def merge_now_and_then(self) -> None:
        """Called each second by a thread of the store."""
        self._merge_or_warn(MERGE_EVERY_S)

    def _merge_or_warn(self, older_than_s: float = 0.0) -> None:
        """A full disk is no reason to stop: the journal has the commits."""
        try:
            self.merge(older_than_s=older_than_s)
        except OSError as error:
            logger.warning(
                "%s lacks commits of the last seconds, which %s has: %s",
                self._layout.consumer_offsets,
                self._layout.group_offsets,
                error,
            )

    def close(self, *, merge: bool = True) -> None:
        """Brings RocketMQ's file up to date, if `merge`; the last call."""
        if merge:
            self._merge_or_warn()
        self._journal.close()

    def clamp(self, maximum: Callable[[str, int], int | None]) -> list[OffsetSetBack]:
        """At open: sets offsets beyond their queue's end back to it and stores that, before the
        first put; in a store that is only read it holds in memory.

        A copy of the old file is kept in quarantine. `maximum(topic, queue_id)` is None for a queue
        of which nothing is known; its offsets stay.
        """
        clamped = []
        with self._turn:
            table = {key: dict(row) for key, row in self._table().items() if isinstance(row, dict)}
            for topic, group, queue_id, offset in _rows_of(self._table()):
                limit = maximum(topic, queue_id)
                if limit is not None and offset > limit:
                    change = OffsetSetBack(
                        group=group, topic=topic, queue_id=queue_id, was=offset, now=limit
                    )
                    clamped.append(change)
                    table[f"{topic}@{group}"][str(queue_id)] = limit
            if clamped or self._unmerged_since_s is not None:
                if clamped and not self._read_only:
                    keep_state_file(self._layout, self._layout.consumer_offsets)
                self._replace({**self._table(), **table})
                if clamped and not self._read_only:
                    self._keep_copy()  # it must not lead beyond the log either
        for change in clamped:
            logger.warning("%s", change)
        self.set_back = tuple(clamped)
        return clamped

    def _table(self) -> dict[str, object]:
        table = self._document.get("offsetTable")
        return table if isinstance(table, dict) else {}

    def _keep_copy(self) -> None:
        """Gives the `.bak` of a broker what the file holds: the broker takes it for a bad file."""
        copy = self._layout.consumer_offsets.with_suffix(".json.bak")
        if copy.is_file() and not copy.is_symlink():
            held = {**self._document, "offsetTable": self._merged}
            write_state_file(self._layout, copy, _as_text(held))

    def _replace(self, table: dict[str, object]) -> None:
        """Writes the file, unless the store is only read, then takes the new table over; what
        cannot be written does not count."""
        document = {**self._document, "offsetTable": table}
        if not self._read_only:
            self._keep_copy()
            write_state_file(self._layout, self._layout.consumer_offsets, _as_text(document))
            self._document, self._merged = document, table
            self._journal.begin_anew()
            self._unmerged_since_s = None
        self._document = document


def _as_text(document: dict[str, object]) -> str:
    text = json.dumps(document, ensure_ascii=False, indent="\t")
    # A name that the file had may have half of a surrogate pair, which UTF-8 lacks.
    return text.encode("utf-8", "backslashreplace").decode()


def _with_commits(merged: dict[str, object], commits: Collection[Moved]) -> dict[str, object]:
    """The table with the commits that it lacks. Where the file no longer holds what a commit found
    there, a merge or another program has stored a newer offset, which counts."""
    table = dict(merged)
    base = {key: dict(_offsets_of(merged.get(key))) for key in {one.key for one in commits}}
    for key, queue_id, was, now in commits:
        if base[key].get(queue_id) == was:
            row = table.get(key)
            table[key] = {**(row if isinstance(row, dict) else {}), str(queue_id): now}
    return table


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


def entries_without_sense(table: Mapping[str, object], key: str | None = None) -> list[str]:
    """What a table of offsets, or the row of one topic and group, has that is no offset of a queue:
    its group starts over there."""
    found = []
    for name, row in table.items():
        if key is not None and name != key:
            continue
        if not isinstance(row, dict):
            found.append(f"{name} = {row!r:.40} is no object")
            continue
        known = {str(queue_id) for queue_id, _ in _offsets_of(row)}
        found += [f"{name}: queue {q!r:.40} = {row[q]!r:.40}" for q in row if q not in known]
        if _split(name) is None:
            found.append(f"{name!r:.80} is no topic@group")
    return found


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
        if (topic, queue_id) in queues.blocked.places:
            return None  # where it ends is not known before the place is free
        queue = queues.get(topic, queue_id)
        return None if queue is None else queue.max_offset

    offsets.clamp(end_of)
    return offsets
