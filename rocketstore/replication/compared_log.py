"""What both ends of a connection ask the log of their store."""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

from rocketstore.errors import BackpressureError
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.replication.protocol.frames import TAIL_MOST
from rocketstore.replication.protocol.session import Bounds, Identity, Standing
from rocketstore.replication.role.startup import become_copy
from rocketstore.replication.role.state import as_replica, load_state, save_state

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.replication.role.state import ReplicationState

__all__ = ["CopyLog", "MasterLog"]


class _ComparedLog:
    """The log of a store that this process writes."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._files = engine.commit_log.queue
        self._segment_bytes = engine.config.commit_log_file_size_bytes

    def digest(self, start: int, end: int) -> bytes | None:
        """SHA-256 of bytes that are committed; None where the log has not all of them any more."""
        digest = hashlib.sha256()
        while start < end:
            file = self._files.find(start)
            if file is None:
                return None
            size = min(end, file.end_offset) - start
            digest.update(file.view(start - file.start_offset, size))
            start += size
        return digest.digest()


class MasterLog(_ComparedLog):
    """Of a master. Its identity does not change while it is open."""

    def __init__(self, engine: WritingEngine, state: ReplicationState) -> None:
        super().__init__(engine)
        self.identity = Identity(state.store_id, state.epochs)

    def bounds(self) -> Bounds:
        end, begin = self._engine.positions.visible, self._engine.commit_log.begin_offset
        return Bounds(begin, max(begin, self._files.start_for(end)), end, self._segment_bytes)


class CopyLog(_ComparedLog):
    """Of a replica."""

    @property
    def replica_id(self) -> bytes:
        """Of this directory. A copy of the directory has the same: the two count as one."""
        state = load_store_state(self._engine.layout)
        return bytes(16) if state is None else uuid.UUID(state.uuid).bytes

    @property
    def identity(self) -> Identity:
        state = load_state(self._engine.layout)
        return Identity(b"", ()) if state is None else Identity(state.store_id, state.epochs)

    def standing(self) -> Standing:
        """Of all that was appended; it waits until that is on the disk."""
        engine = self._engine
        end, begin = engine.positions.wrote, engine.commit_log.begin_offset
        limit_ms = engine.config.sync_flush_timeout_ms
        if not engine.commit_log.wait_flushed(end, limit_ms):
            raise BackpressureError(f"the copy was not flushed in {limit_ms} ms")
        tail = max(begin, end - TAIL_MOST)
        digest = self.digest(tail, end) or bytes(32)
        return Standing(begin, end, tail, digest, self._segment_bytes)

    def keep(self, identity: Identity) -> None:
        """The store is a copy of this master from here on, durably."""
        layout = self._engine.layout
        before = load_state(layout)
        after = as_replica(before, *identity)
        if after != before:
            if before is None or before.role != "replica":
                become_copy(self._engine)
            save_state(layout, after)
