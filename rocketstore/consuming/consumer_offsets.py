"""Stored offsets of consumer groups: `config/consumerOffset.json`, in RocketMQ's own form.

    {"offsetTable": {"topic@group": {"0": 5, "1": 7}}}

A commit goes to the journal of `commit_journal` first, and is merged into the file soon. Its member
`"rocketstore": {"merged": 17, "crc": 2784128337, "own_crc": 4184812710}`, which RocketMQ ignores, says
how far that has come, so that an open sees another or an older file.

The number is the next queue offset that the group wants. Whatever else the file holds
(`dataVersion`, other groups, values that we do not understand) is carried over as it is. An
offset is stored only after the flushed position covers the end of the record before it, so
that a power cut cannot leave a group waiting beyond the log, where the messages put next would be
skipped (D-17).

A copy of another store has the offsets of its master, which change by `take_from_master` only, and
those of groups that committed here first. The same member names the latter (`own`), and the
`LogPlace` of what offsets of services speak of (`log`).
"""

from __future__ import annotations

import errno
import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.consuming.commit_journal import CommitJournal, Journal, Moved, mark_of
from rocketstore.consuming.group_claims import Claim, GroupClaimedError
from rocketstore.consuming.offset_tables import (
    MAX_OFFSET,
    Rows,
    beyond_queues,
    document_in,
    entries_without_sense,
    floors_in,
    groups_in,
    loses,
    member_of,
    offsets_of,
    read_together,
    split_key,
)
from rocketstore.errors import (
    BackpressureError,
    ReplicaStoreError,
    StoreClosedError,
    StoreReadOnlyError,
)
from rocketstore.log.layout.log_place import LogPlace, place_at, place_in, stands
from rocketstore.log.layout.paths import StoreLayout, check_group
from rocketstore.log.layout.state_files import json_text, read_json, write_state_file
from rocketstore.log.recovery.quarantine import keep_state_file
from rocketstore.log.recovery.report import OffsetSetBack
from rocketstore.values.bounded_json import LIMITS, TooLargeError, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from rocketstore._native.sync.positions import Positions
    from rocketstore.consuming.offset_tables import Maximum
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = ["ConsumerOffsets", "recovered_offsets"]

logger = logging.getLogger(__name__)

_EMPTY: dict[str, object] = {}  # the same one each time
#: A commit is in RocketMQ's file after this long.
MERGE_EVERY_S = 5.0


class ConsumerOffsets:
    """The table of one store. Any thread may use it; each change replaces the file atomically."""

    def __init__(self, layout: StoreLayout, *, read_only: bool = False) -> None:
        self._layout = layout
        self._read_only = read_only
        #: Address of the master, in a copy of it; "": the store is none.
        self.master = ""
        # Guards the table, the claims and the file; never held while anyone waits for a flush. A
        # signal's handler may come inside: a table is replaced, never changed.
        self._turn = SignalSafeLock("stored offsets")
        self._document: dict[str, object] = {}
        self._journal = CommitJournal(layout.group_offsets)
        # The table as RocketMQ's file has it, and when the first commit came that it lacks.
        self._merged: dict[str, object] = {}
        self._unmerged_since_s: float | None = None
        self._claims: dict[str, tuple[Claim, ...]] = {}
        #: Offsets that a transaction is about to store; replaced, never changed, by the service that
        #: commits it.
        self.moving: Sequence[Moved] = ()
        # Groups by topic, those of any by None, and the table that they are in.
        self._rows, self._merged_rows = Rows(), Rows()
        self._named: tuple[dict[str, object], dict[str | None, tuple[str, ...]]] = {}, {}
        #: Where the log is flushed, of a store that is open for writing.
        self.place: Callable[[], LogPlace | None] = lambda: None
        #: Offsets that `clamp` set back.
        self.set_back: tuple[OffsetSetBack, ...] = ()
        #: What shows that a file is not as rocketstore left it, in sentences.
        self.doubts: tuple[str, ...] = ()
        # The largest offset of each queue, and the table that they are in.
        self._floors: tuple[dict[str, object], dict[str, int]] = {}, {}

    def load(self, *, ours: bool = False) -> None:
        """Reads the file, or its `.bak`; one that is no use is reported and counts as empty.
        `ours`: whether rocketstore wrote the store last.

        Raises:
            ReadFailedError: the file is beyond its limits; it may be good, and a writer replaces it.
        """
        # Before the file: a merge between the two looks leaves the file as the newer one.
        journal = Journal(self._layout.group_offsets)
        path = self._layout.consumer_offsets
        document = document_in(path, read_json(path, whole=not self._read_only))
        merged = document.get("offsetTable", {})
        table, mark, doubts = read_together(merged, document.get("rocketstore"), journal, ours=ours)
        newer = table != merged or bool(doubts)
        with self._turn():
            self._document = {**document, "offsetTable": table} if newer else document
            self._merged, self.doubts = merged, doubts
            # What another program left is marked, too.
            self._unmerged_since_s = 0.0 if newer or (not mark and journal.end > 1) else None
            self._journal.follow(journal, mark, begun=bool(mark) and not newer)

    def get(self, topic: str, group: str) -> dict[int, int]:
        """Stored next offsets by queue id; empty for a group that never committed."""
        return dict(self.row(f"{topic}@{group}"))

    def row(self, key: str) -> Mapping[int, int]:
        """The same of "topic@group". The next commit replaces it."""
        return self._rows.offsets(key, self._table())

    def warn_of(self, topic: str, group: str) -> None:
        """Called when a consumer of the group begins: it starts over where the file holds no
        offset."""
        with self._turn():
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
        with self._turn():
            table = self._table()
            if table is not self._named[0]:
                self._named = table, groups_in(table)
            return self._named[1].get(topic, ())

    def highest(self, topic: str, queue_id: int) -> int:
        """The largest offset stored for a queue: a floor of its next offset (D-17)."""
        with self._turn():
            table = self._table()
            if table is not self._floors[0]:  # once for all queues, each of which asks
                self._floors = table, floors_in(table)
            return self._floors[1].get(f"{topic}/{queue_id}", 0)

    def claim(
        self, topic: str, group: str, owner: object, queue_ids: tuple[int, ...] | None = None
    ) -> None:
        """Makes `owner` the only consumer of some queues of (group, topic), or of all of its queues,
        until `release` or its collection."""
        if self._read_only:
            return  # a reader sees what every writer has stored, and owns nothing
        check_group(group)
        key = f"{topic}@{group}"
        with self._turn():
            others = [
                held
                for held in self._claims.get(key, ())
                if held.owner() is not None and held.owner() is not owner
            ]
            for held in others:
                if held.meets(queue_ids):
                    raise GroupClaimedError(topic, group, str(held))
            moving = [move.queue_id for move in self.moving if move.key == key]
            if moving and (queue_ids is None or not set(moving).isdisjoint(queue_ids)):
                raise GroupClaimedError(topic, group, "a transaction that is not on disk yet")
            # An owner that a host keeps for a guest names the process of that.
            made_by = getattr(owner, "made_by", f"thread {threading.current_thread().name!r}")
            self._claims[key] = (*others, Claim(queue_ids, weakref.ref(owner), made_by))

    def release(self, topic: str, group: str, owner: object) -> None:
        """Gives a claim back; nothing happens when `owner` does not hold it."""
        key = f"{topic}@{group}"
        with self._turn():
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
            ReplicaStoreError: the store is a copy, and the group one of its master's.
        """
        self.check_writable()
        check_group(group)
        for queue_id, offset in offsets.items():
            if not 0 <= offset <= MAX_OFFSET or queue_id < 0:
                raise ValueError(f"queue {queue_id}: offset {offset} cannot be stored")
        if sync:
            wait_flushed(physical_end)
        key = f"{topic}@{group}"
        with self._turn() as nested:
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
            if self.master and key not in self.own:
                self._begin_own(key, {**table, key: changed})
                return
            named = {(key, queue_id): offset for queue_id, offset in offsets.items()}
            self._add({**table, key: changed}, named, sync=sync)

    def _begin_own(self, key: str, table: dict[str, object]) -> None:
        """The first commit of a group in a copy."""
        if key in self._table():
            topic, _, group = key.partition("@")
            raise ReplicaStoreError(
                f"group {group!r} of topic {topic!r}: its offsets are those of the master "
                f"{self.master}: commit there, or read by a group of another name"
            )
        self._replace(table, own=self.own | {key})

    @property
    def own(self) -> frozenset[str]:
        """ "topic@group" of those that committed in this store while it was a copy, and which no
        master has."""
        names = self.noted("own")
        found = names if isinstance(names, list) else ()
        return frozenset(n for n in found if isinstance(n, str))

    def noted(self, name: str) -> object:
        """What our member of the file has by this name."""
        ours = self._document.get("rocketstore")
        return ours.get(name) if isinstance(ours, dict) else None

    @property
    def table(self) -> Mapping[str, object]:
        """What is stored now. It is replaced, never changed."""
        return self._table()

    def take_from_master(self, groups: Mapping[str, Mapping[int, int]], *, whole: bool) -> None:
        """Stores what the master has stored: next offsets by queue id of each "topic@group", none of
        one that is gone. `whole`: the master has no other groups. All or nothing, also after a kill.

        Raises:
            DiskFullError, OSError: nothing is stored; with EFBIG as it could not be read again.
        """
        with self._turn():
            before, own = self._table(), self.own - groups.keys()
            table = {**before}
            if whole:
                for key in [*table]:
                    if split_key(key) is not None and key not in own:
                        del table[key]
            changed: dict[tuple[str, int], int] = {}
            for key, row in groups.items():
                was = dict(offsets_of(before.get(key)))
                changed.update({(key, n): at for n, at in row.items() if was.get(n) != at})
                table[key] = {str(n): at for n, at in row.items()}
                if not row:
                    del table[key]
            if own != self.own or any(
                key not in table or loses(before[key], table[key]) for key in before
            ):
                self._replace(table, own=own)
            elif changed:
                self._add(table, changed, sync=False)

    def commit_moves(self, moves: Iterable[Moved]) -> None:
        """Stores offsets of any groups with one record of the journal, all or none. An offset counts
        where the table holds what the move found there. The caller has them in the log, durably, so
        the record is not synced.

        Raises:
            BackpressureError: as `commit`.
            DiskFullError, OSError: nothing is stored.
        """
        with self._turn() as nested:
            if nested:
                raise BackpressureError(
                    "offsets of a transaction: this thread is at work on stored offsets already, "
                    "try again outside the signal handler"
                )
            table = dict(self._table())
            changed: dict[tuple[str, int], int] = {}
            for key, queue_id, was, now in moves:
                if self._rows.offsets(key, table).get(queue_id) == was:
                    self._rows.move(key, table, queue_id, now)
                    changed[key, queue_id] = now
            if changed:
                self._add(table, changed, sync=False)

    def sync(self) -> None:
        """Makes all commits durable."""
        with self._turn():
            self._journal.sync()

    def _add(
        self, table: dict[str, object], offsets: Mapping[tuple[str, int], int], *, sync: bool
    ) -> None:
        """Takes a table over that differs in these offsets, once they are in a file."""
        base = self._merged_rows.offsets
        moved = [
            (key, queue_id, base(key, self._merged).get(queue_id), now)
            for (key, queue_id), now in offsets.items()
        ]
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
        with self._turn() as nested:
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

    def clamp(self, maximum: Maximum, *, lost: bool = False) -> list[OffsetSetBack]:
        """At open, before the first put: sets offsets back as `beyond_queues` has it, on disk if not
        only read. Quarantine has a copy of the old file."""
        with self._turn():
            table: dict[str, Any] = self._table()
            clamped = beyond_queues(table, maximum, lost=lost)
            changed = {f"{one.topic}@{one.group}" for one in clamped}
            if changed:
                table = {k: dict(row) if k in changed else row for k, row in table.items()}
            for one in clamped:
                table[f"{one.topic}@{one.group}"][str(one.queue_id)] = one.now
            if clamped or self._unmerged_since_s is not None:
                if (clamped or self.doubts) and not self._read_only:
                    keep_state_file(self._layout, self._layout.consumer_offsets)
                self._replace(table)
                if clamped and not self._read_only:
                    self._keep_copy()  # it must not lead beyond the log either
        for text in (*self.doubts, *clamped):
            logger.warning("%s: %s", self._layout.root, text)
        self.set_back = tuple(clamped)
        return clamped

    def _table(self) -> dict[str, object]:
        table = self._document.get("offsetTable")
        return table if isinstance(table, dict) else _EMPTY

    def _keep_copy(self) -> None:
        """Gives a broker's `.bak` what the file holds: the broker takes it for a bad file."""
        copy = self._layout.consumer_offsets.with_suffix(".json.bak")
        if copy.is_file() and not copy.is_symlink():
            held = {**self._document, "offsetTable": self._merged}
            write_state_file(self._layout, copy, json_text(held))

    def _check_size(self, text: bytes) -> None:
        """OSError for what the next open would not read: all offsets would be gone."""
        path = self._layout.consumer_offsets
        try:
            weigh(text, LIMITS[path.name])
        except TooLargeError as error:
            said = (
                f"the offsets of all groups would take {error}: remove groups; the old ones count"
            )
            raise OSError(errno.EFBIG, said, str(path)) from None

    def _replace(self, table: dict[str, object], own: Collection[str] | None = None) -> None:
        """Writes the file, unless the store is only read, then takes the new table over; what
        cannot be written does not count. `own`: None leaves them as they are."""
        document = {**self._document, "offsetTable": table}
        if not self._read_only:
            own = self.own if own is None else own
            merged = self._journal.before_merge()
            named = {"own": sorted(own), "log": self.place(), **mark_of(table, merged)}
            document["rocketstore"] = member_of(named)
            text = json_text(document)
            self._check_size(text)
            self._keep_copy()
            write_state_file(self._layout, self._layout.consumer_offsets, text)
            self._document, self._merged = document, table
            self._journal.after_merge(merged)
            self._unmerged_since_s = None
        self._document = document


def recovered_offsets(
    layout: StoreLayout,
    queues: ConsumeQueueStore,
    log: MappedFileQueue,
    positions: Positions,
    *,
    lost: bool,
    read_only: bool,
    ours: bool,
) -> ConsumerOffsets:
    """The offsets of a store with recovered queues, none after the end of its queue (D-17). `lost`:
    the log is known to have lost its end. `ours`: rocketstore wrote last before this open."""
    offsets = ConsumerOffsets(layout, read_only=read_only)
    offsets.load(ours=ours)
    place = place_in(offsets.noted("log"))
    if place is not None and stands(log.files, place) is False:
        lost = True
        logger.warning("%s: its offsets are of another log", layout.consumer_offsets)
    offsets.place = lambda: place_at(log.files, positions.flushed)

    def end_of(topic: str, queue_id: int) -> int | None:
        if (topic, queue_id) in queues.blocked.places:
            return MAX_OFFSET  # where it ends is not known before the place is free
        queue = queues.get(topic, queue_id)
        return None if queue is None else queue.max_offset

    offsets.clamp(end_of, lost=lost)
    return offsets
