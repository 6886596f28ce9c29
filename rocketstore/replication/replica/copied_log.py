"""The log of a store that is a copy: what its master learns of it, and how it grows and is cut."""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from dataclasses import replace
from typing import Final

from rocketstore._native.append.raw_append import append_raw
from rocketstore._native.format.scanner import SearchBudget, resynchronise
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import BackpressureError, ReplicationError
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.log.recovery.progress import order_cut
from rocketstore.replication.protocol.classic import OVERLAP_BYTES
from rocketstore.replication.protocol.frames import TAIL_MOST
from rocketstore.replication.protocol.handshake import FinalError
from rocketstore.replication.protocol.session import Identity, LogTail
from rocketstore.replication.replica.records import RecordAssembler, RecordChunk
from rocketstore.replication.role.startup import become_copy
from rocketstore.replication.role.state import as_replica, load_state, save_state

__all__ = ["CopiedLog", "MustOpenAgainError"]

#: Least length of what one append takes, and of a file's view that is compared, bytes.
APPEND_BYTES: Final = 1 << 20
#: While more and more comes, a flush is asked for as often as this, bytes: each takes the disk, and
#: a processor, from the next.
FLUSH_BYTES: Final = 32 << 20
#: What is synced where it was received, at most, bytes: less than it takes to wake another thread.
HERE_BYTES: Final = 256 << 10
#: A sync that took longer leaves the next ones to the flusher, for so long, seconds.
QUICK_S: Final = 0.1
SLOW_FOR_S: Final = 1.0
#: Before an append is tried again that found no room, seconds.
ROOM_AGAIN_S: Final = 0.01


class CopiedLog:
    """The log of a store that is a copy, which grows by whole records. A `CopyStore`."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._log = engine.commit_log.log
        self._records: RecordAssembler | None = None
        self._wanted = 0  # up to where a flush was asked for
        self._slow_until = 0.0

    @property
    def empty(self) -> bool:
        return self.end == self.begin

    @property
    def begin(self) -> int:
        return self._engine.commit_log.begin_offset

    @property
    def end(self) -> int:
        """Everything below was received."""
        return self._engine.positions.wrote

    @property
    def synced(self) -> int:
        """Everything below is on the disk."""
        return self._engine.positions.flushed

    @property
    def segment_bytes(self) -> int:
        return self._engine.config.commit_log_file_size_bytes

    @property
    def replica_id(self) -> bytes:
        """Of this directory. A copy of the directory has the same: the two count as one."""
        state = load_store_state(self._engine.layout)
        return bytes(16) if state is None else uuid.UUID(state.uuid).bytes

    @property
    def identity(self) -> Identity:
        state = load_state(self._engine.layout)
        return Identity(b"", ()) if state is None else Identity(state.store_id, state.epochs)

    def keep(self, identity: Identity) -> None:
        """Notes durably that the store is a copy of this master."""
        layout = self._engine.layout
        before = load_state(layout)
        after = as_replica(before, *identity)
        if after != before:
            if before is None or before.role != "replica":
                become_copy(self._engine)
            save_state(layout, after)

    def log_tail(self) -> LogTail:
        """Of all that was appended.

        Raises:
            BackpressureError: it is not on the disk in time.
        """
        end, begin = self._flushed_end(), self.begin
        tail = max(begin, end - TAIL_MOST)
        digest = hashlib.sha256(self._bytes(tail, end)).digest()
        return LogTail(begin, end, tail, digest, self.segment_bytes)

    def last_bytes(self) -> tuple[int, bytes]:
        """Where the last bytes begin that are compared, and these bytes.

        Raises:
            BackpressureError: they are not on the disk in time.
        """
        end = self._flushed_end()
        start = self._record_before(end)
        return start, self._bytes(start, end)

    def _flushed_end(self) -> int:
        """Where the log ends, once all of it is on the disk."""
        end, limit_ms = self.end, self._engine.config.sync_flush_timeout_ms
        if not self._engine.commit_log.wait_flushed(end, limit_ms):
            raise BackpressureError(f"the copy was not flushed in {limit_ms} ms")
        return end

    def _bytes(self, at: int, end: int) -> bytes:
        found = bytearray()
        while at < end:
            file = self._engine.commit_log.queue.find(at)
            if file is None:
                raise ReplicationError(f"the copy lacks the file of its bytes at {at}")
            size = min(end, file.end_offset) - at
            found += file.view(at - file.start_offset, size)
            at += size
        return bytes(found)

    def _record_before(self, end: int) -> int:
        """Where a record begins, or the log, so that its master finds one there, too."""
        at, files = end - OVERLAP_BYTES, self._engine.commit_log.queue
        while at > self.begin and (file := files.find(at)) is not None and at > file.start_offset:
            position, to = at - file.start_offset, min(file.size, end - file.start_offset)
            found = resynchronise(file, position, to, budget=SearchBudget(), verify=0)
            if found is not None:
                return file.start_offset + found
            if file.end_offset < end:
                return file.end_offset
            at = max(at - OVERLAP_BYTES, file.start_offset)
        return max(at, self.begin)

    def order_cut(self, offset: int) -> MustOpenAgainError:
        """What lies from `offset` on is not of the master's history; nothing is appended any more."""
        layout = self._engine.layout
        state = load_state(layout)
        if state is not None and state.role == "master":  # first: what is cut was of a master
            save_state(layout, replace(state, role="replica"))
        order_cut(layout, offset)
        return MustOpenAgainError(
            f"{self._engine.path}: [{offset}, {self.end}) is not of the master's history, and is "
            "cut off at the next open: close the store, and open it"
        )

    def resume_at(self, offset: int) -> None:
        """What comes next begins at `offset`: the end of the log, or where an empty one begins.

        Raises:
            FinalError: no log of ours can begin there.
        """
        if offset != self.end and not self.empty:
            raise ReplicationError(f"the master goes on at {offset}, the copy ends at {self.end}")
        if offset != self.end and offset % self.segment_bytes:
            raise FinalError(
                f"the master's file begins at {offset}, no multiple of {self.segment_bytes}: open "
                "the copy with the master's commit_log_file_size_bytes"
            )
        if offset != self.end and self._engine.commit_log.queue.files:
            raise FinalError(
                f"the master goes on at {offset}, and this copy, which is empty, has a file at "
                f"{self.end}: make a new copy in an empty directory"
            )
        config, ring = self._engine.config, self._engine.write.ring
        record_most = config.record_limit_bytes
        append_most = max(2 * record_most, APPEND_BYTES) if ring is None else ring.size
        self._records = RecordAssembler(
            offset, self.segment_bytes, record_most=record_most, append_most=append_most
        )

    async def take(self, data: memoryview) -> None:
        """The next bytes. Returns once the log has what is whole of them.

        Raises:
            ReplicationError: they are no records.
            StoreFailedError, StoreClosedError, DiskFullError, OSError: as a put.
        """
        assert self._records is not None
        for chunk in self._records.take(data):
            await self._append(chunk)

    def sync_here(self) -> bool:
        """Brings what was received to the disk before it returns, where that is little, no flush is
        under way, and the last one was quick: the loop waits meanwhile. False: it is not.

        Raises:
            OSError: the store has failed.
        """
        end, synced, began = self.end, self.synced, time.monotonic()
        if self._wanted > synced or end - synced > HERE_BYTES or began < self._slow_until:
            return False
        if end > synced:
            self._engine.write.flusher.flush(alone=True)  # this thread appends
            if (ended := time.monotonic()) - began > QUICK_S:
                self._slow_until = ended + SLOW_FOR_S
        return self.synced >= end

    def sync_soon(self, *, now: bool) -> None:
        """Has what was received brought to the disk: `now`, as nothing else waits to be received,
        or once it is much."""
        end = self.end
        if end > self._wanted and (now or end - self._wanted >= FLUSH_BYTES):
            self._wanted = end
            self._log.request_flush(end)

    async def _append(self, chunk: RecordChunk) -> None:
        while True:
            try:
                if chunk.offset != self.end:
                    self._engine.begin_at(chunk.offset)
                append_raw(self._log, chunk.offset, chunk.data, chunk.last_record, chunk.stored_ms)
            except BackpressureError:
                self._log.request_flush(self.end)
                await asyncio.sleep(ROOM_AGAIN_S)
                continue
            return


class MustOpenAgainError(ReplicationError):
    """The log has to end at another offset than it does, which no open store can do. The order is
    on the disk; the next open carries it out."""
