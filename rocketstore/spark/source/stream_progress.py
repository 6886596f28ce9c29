"""How far a stream has come and may go: what the streaming source decides, without Spark.

An offset is {"v": 1, "store": uuid, "phys": physical offset}: everything below was given out. Where
there is a record before that place, "last" and "epochs" describe it (`history`). A stream
that began with queue offsets has {"v": 2, …, "from": {topic: {queue id: first queue offset}}}: what
the option means is settled once, when the stream begins. A queue offset that leaves out no message
after `phys` is not listed.

With a group, "queues" is a checksum of the next offset of each queue at that place. Retention removes
what the group has consumed, and with it a blank or other topics after the place. Where the begin of
the log has the same checksum, no message of the stream was among that.

Messages that are not wanted give no micro-batch: `PassedBy` has the rule.
"""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from rocketstore import RocketStoreError, Store, StoreReplacedError
from rocketstore.replication import epochs_before
from rocketstore.spark.errors import HINTS, SparkFaceError
from rocketstore.spark.sink.shards import refuse_shards
from rocketstore.spark.source.history import (
    check_store,
    not_this_history,
    other_log,
    record_before,
)
from rocketstore.spark.source.microbatch import (
    by_bytes,
    by_rows,
    first_wanted,
    holds_rows,
    record_start,
)
from rocketstore.spark.source.options import LATEST, QueueOffsets, ReadOptions
from rocketstore.spark.source.plan import plan
from rocketstore.spark.source.queue_offsets import (
    Bounds,
    asked_start,
    between,
    bounds_in,
    digest,
    first_offsets,
    needed_from,
    next_offsets,
    numbers_in,
    starts,
)
from rocketstore.spark.source.topic_check import check_names
from rocketstore.spark.stores import open_to_read, store_uuid

if TYPE_CHECKING:
    from rocketstore import Scan

__all__ = ["PassedBy", "Progress"]

logger = logging.getLogger(__name__)

VERSION = 1
WITH_BOUNDS = 2
#: A stream without anything new looks at the store from scratch so often.
REOPEN_S = 1.0


class Progress:
    """One stream over one store, which stays open for reading; used by one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._store: Store | None = None
        self._uuid = ""
        self._frozen: int | None = None
        self._seen = -1
        self._looked_at = 0.0
        self._last: tuple[int, dict[str, int] | None] = -1, None
        self._next: tuple[int, QueueOffsets] = -1, {}
        self._passed = PassedBy(options)
        self._given_at = float("-inf")
        self._moved_at: float | None = None
        self._warned: set[str] = set()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None
            self._last, self._next = (-1, None), (-1, {})

    def initial(self) -> dict[str, Any]:
        """Where a new query begins; a query that has a checkpoint goes on from there instead."""
        store, options = self._opened(), self._options
        if options.fail_on_data_loss:
            check_names(options.path, options.wanted.get("topics") or ())
        starting = asked_start(store, options)
        if starting == LATEST:
            return self._offset(self._durable())
        if isinstance(starting, dict):
            firsts, begin = starts(store, options, starting, self._durable())
            return self._offset(begin, needed_from(store, between(firsts, {}), begin))
        return self._offset(store.begin_offset)

    def end(self) -> dict[str, Any]:
        """The last place that could be given out now."""
        return self._offset(self._durable())

    def freeze(self) -> None:
        """From now on the stream ends where it ends now."""
        self._frozen = None
        self._frozen = self._durable()

    def latest(self, start: dict[str, Any], *, unlimited: bool = False) -> dict[str, Any]:
        """The end of the next micro-batch that begins at `start`.

        Raises:
            SparkFaceError: RS_STORE_REPLACED, RS_LOG_TRUNCATED: the log is not the one of `start`.
        """
        self._place(start)
        end = self._durable()
        begin = self._check_history(start)
        if end == begin or (self._frozen is not None and end < begin <= self._log_end()):
            return start  # nothing new; or the target is another query's, or an older one
        if end > begin:
            place, found = self._passed.look(self._opened(), self._uuid, begin, end)
            if not found:
                if not (unlimited or self._moves_on(place - begin)):
                    return start
                end = place
            elif not unlimited:
                if self._waits(place, end):
                    return start
                end = self._limited(place, end)
        self._given_at = self._moved_at = time.monotonic()
        bounds = self._bounds(start)
        return self._offset(end, bounds and needed_from(self._opened(), bounds, end))

    def _moves_on(self, passed: int) -> bool:
        """Whether an empty micro-batch takes the offset over messages that are not wanted."""
        if self._frozen is not None or passed >= PASSED_BYTES:
            return True
        now = time.monotonic()
        self._moved_at = self._moved_at or now
        return now >= self._moved_at + PASSED_S

    def _waits(self, begin: int, end: int) -> bool:
        """Whether a micro-batch waits for more messages. The first one never does, as in Kafka's
        source."""
        options = self._options
        if not options.min_rows or self._frozen is not None:
            return False
        if time.monotonic() >= self._given_at + options.max_delay_s:
            return False
        store = self._opened()
        begin = record_start(store, max(begin, store.begin_offset))
        return not holds_rows(store, begin, end, options.min_rows, options.wanted)

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> tuple[list[Scan], Bounds]:
        """Scans of [start, end), and the queue offsets that are wanted.

        Raises:
            SparkFaceError: as `latest`; RS_DATA_LOST: what is wanted was trimmed.
        """
        for offset in (start, end):
            self._place(offset)
        store = self._opened()
        first, last = self._check_history(start), self._check_history(end)
        last = min(last, self._log_end())
        if first > last:
            return [], {}
        first = min(last, self._passed.after(store, self._uuid, first))
        first = record_start(store, self._kept(start, first, last))
        bounds = self._bounds(start) or {}
        return plan(self._options, first, last, bounds), bounds

    def queue_offsets(self, start: dict[str, Any]) -> QueueOffsets:
        """Where a stream that goes on at `start` begins in each queue that it reads.

        Raises:
            SparkFaceError: as `latest`.
        """
        self._place(start)
        found, bounds = self._next_offsets(self._check_history(start)), self._bounds(start) or {}
        return {
            topic: {n: max(at, bounds.get((topic, n), (0, 0))[0]) for n, at in row.items()}
            for topic, row in found.items()
        }

    # ---- places ----

    def _opened(self) -> Store:
        """Opened again where another store has its place: the checkpoint says whether the stream
        goes on there."""
        try:
            if self._store is not None:
                self._store.flushed_offset  # noqa: B018
        except StoreReplacedError:
            self.close()
        if self._store is None:
            refuse_shards(self._options.path, "a stream needs one store; read them as a batch")
            lossy = not self._options.fail_on_data_loss
            self._store = open_to_read(self._options.path, lossy=lossy)
            self._looked_at = time.monotonic()
            self._uuid = store_uuid(self._options.path)
        return self._store

    def _durable(self) -> int:
        if self._frozen is not None:
            return self._frozen
        store = self._opened()
        end = store.flushed_offset
        if end == self._seen and time.monotonic() > self._looked_at + REOPEN_S:
            # A store without a writer when it was opened is not always followed later.
            self.close()
            store = self._opened()
            end = store.flushed_offset
        if end != self._seen:
            self._looked_at = time.monotonic()
        self._seen = end
        return max(store.begin_offset, end)

    def _log_end(self) -> int:
        store = self._opened()
        return max(store.begin_offset, store.flushed_offset)

    def _offset(self, physical: int, bounds: Bounds | None = None) -> dict[str, Any]:
        if self._last[0] != physical:
            self._last = physical, record_before(self._opened(), physical)
        offset: dict[str, Any] = {"v": VERSION, "store": self._uuid, "phys": physical}
        if self._last[1] is not None:
            offset["last"] = self._last[1]
        if epochs := epochs_before(self._options.path, physical):
            offset["epochs"] = epochs
        if self._options.group is not None:
            # Queues that cannot be read, as without a codec of inner batches, stop no stream.
            with contextlib.suppress(RocketStoreError, OSError, ModuleNotFoundError):
                offset["queues"] = digest(self._next_offsets(physical))
        if bounds is not None:
            offset |= {"v": WITH_BOUNDS, "from": first_offsets(bounds)}
        return offset

    def _bounds(self, offset: dict[str, Any]) -> Bounds | None:
        """The queue offsets that a batch beginning at `offset` still needs; None in a stream
        without any."""
        if offset["v"] == WITH_BOUNDS:
            try:
                return bounds_in(offset["from"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                text = f"offset {offset}: no queue offsets ({error!r})"
                raise SparkFaceError("RS_BAD_CHECKPOINT", text) from error
        starting = self._options.starting
        if not isinstance(starting, dict):
            return None
        # An offset of an earlier release lacks them: it settled "latest" and did not note where.
        return needed_from(self._opened(), numbers_in(starting), int(offset["phys"]))

    def _place(self, offset: dict[str, Any]) -> None:
        self._opened()
        if offset.get("v") not in (VERSION, WITH_BOUNDS):
            raise SparkFaceError("RS_BAD_CHECKPOINT", f"offset {offset}: of another version")
        check_store(self._options.path, self._uuid, offset)

    def _check_history(self, offset: dict[str, Any]) -> int:
        """The place of `offset`. Raises RS_LOG_TRUNCATED, or warns once, where the log is not the one
        in which it was made; then the place from where on it is another one, as far as that is known.
        """
        found = other_log(self._options.path, self._uuid, self._opened(), offset, self._log_end())
        if found is None:
            return int(offset["phys"])
        text = f"{self._options.path} {found.text}"
        if self._options.fail_on_data_loss:
            raise SparkFaceError(
                "RS_LOG_TRUNCATED", f"{text}; start with a new checkpoint{HINTS['data_loss']}"
            )
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("%s; the stream goes on at %d", text, found.goes_on)
        return found.place

    def _next_offsets(self, place: int) -> QueueOffsets:
        if self._next[0] != place:
            self._next = place, next_offsets(self._opened(), self._options.wanted, place)
        return self._next[1]

    def _kept(self, start: dict[str, Any], first: int, last: int) -> int:
        """`first`, or the begin of the log when what lay before it was removed."""
        begin = self._opened().begin_offset
        if first >= begin:
            return first
        known = (
            start.get("queues") if first >= int(start["phys"]) else None
        )  # else of another history
        if known is not None and known == digest(self._next_offsets(begin)):
            return begin  # nothing but other topics and the blank at the end of a file
        lost = (
            f"[{first}, {min(begin, last)}) of {self._options.path} was removed before it was read"
        )
        if self._options.fail_on_data_loss:
            raise SparkFaceError("RS_DATA_LOST", f"{lost}{HINTS['data_loss']}")
        logger.warning("%s", lost)
        return begin

    def _limited(self, begin: int, end: int) -> int:
        store, options = self._opened(), self._options
        begin = max(begin, store.begin_offset)
        if begin >= end:
            return end  # all of it was removed, also after the place where the stream was to end
        begin = record_start(store, begin)
        if options.max_bytes is not None:
            end = by_bytes(store, begin, end, options.max_bytes)
        if options.max_rows is not None:
            end = by_rows(store, begin, end, options.max_rows, options.wanted)
        return end


#: Bytes of other messages, and seconds with such, after which an empty micro-batch moves the offset
#: on. A restart reads these bytes once more, at about 1 GB/s; a batch costs Spark some 0.1 s.
PASSED_BYTES: Final = 256 << 20
PASSED_S: Final = 60.0


class PassedBy:
    """What a stream passes by: [begin, end) of the log after its offset, in which nothing is
    wanted; used by one thread.

    Messages of other topics give no micro-batch, so the offset stays where it is. A stream
    remembers in memory how far it has looked, and reads nothing twice. The memory is of one history
    of the log.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._begin = self._end = -1
        self._uuid = ""
        #: As a stream's offset, by which another history is noticed.
        self._mark: dict[str, Any] = {}

    def after(self, store: Store, uuid: str, begin: int) -> int:
        """`begin`, or a later place before which nothing is wanted."""
        if not self._begin <= begin < self._end:
            return begin
        if uuid != self._uuid or not_this_history(store, self._mark):
            self._begin = self._end = -1
            return begin
        return self._end

    def look(self, store: Store, uuid: str, begin: int, end: int) -> tuple[int, bool]:
        """Looks on in [begin, end), at most PASSED_BYTES.

        Returns:
            A place before which nothing is wanted, and whether something is wanted there or soon
            after it. Damage counts as wanted, and so does what was removed: the reader reports it.
        """
        options = self._options
        place = self.after(store, uuid, begin)
        if place < store.begin_offset:
            return place, True
        place = record_start(store, place)
        last = min(end, max(place, begin + PASSED_BYTES))
        if place < last:
            found = first_wanted(store, place, last, options.wanted, options.verify)
            if found is not None:
                return found, True
            place = last if last == end else record_start(store, last)
            before = record_before(store, place)
            if before is not None:  # else nothing would show another history
                self._begin, self._end, self._uuid = begin, place, uuid
                self._mark = {"phys": place, "last": before}
        return place, False
