"""The log of a master as it is compared with that of a replica, and sent."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from rocketstore._native.format.scanner import SearchBudget, resynchronise, scan_segment
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.replication.protocol.session import Bounds, Identity
from rocketstore.replication.role.state import ReplicationState

__all__ = ["LogSource", "MasterLog", "log_source_of"]


class MasterLog:
    """The log as a session compares it. A `MasterStore`: its identity does not change while the
    store is open."""

    def __init__(self, engine: WritingEngine, state: ReplicationState) -> None:
        self.identity = Identity(state.store_id, state.epochs)
        self._engine = engine
        self._files = engine.commit_log.queue

    def bounds(self) -> Bounds:
        engine = self._engine
        end, begin = engine.positions.visible, engine.commit_log.begin_offset
        last_file = max(begin, self._files.start_for(end))
        return Bounds(begin, last_file, end, engine.config.commit_log_file_size_bytes)

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


class LogSource:
    """The log as a sender reads it."""

    def __init__(
        self,
        end: Callable[[], int],
        begin: Callable[[], int],
        piece: Callable[[int, int, bool], memoryview | None],
        groups: Callable[[], Mapping[str, object]],
        begins: Callable[[int], bool],
    ) -> None:
        """`end()`: what may be sent ends here; `piece(offset, most, whole)`: bytes of one segment from
        an offset on, None if the log has none there, `whole`: of whole records as far as one fits;
        `groups()`: stored offsets; `begins(offset)`: whether a record may begin there."""
        self.end = end
        self.begin = begin
        self.piece = piece
        self.groups = groups
        self.begins = begins


def log_source_of(engine: WritingEngine) -> LogSource:
    """What is visible in the log of an open store."""
    positions, files = engine.positions, engine.commit_log.queue

    def piece(offset: int, most: int, whole: bool) -> memoryview | None:
        file = files.find(offset)
        if file is None:
            return None
        size = min(positions.visible, file.end_offset, offset + most) - offset
        if whole and size == most:
            size = _whole_records(file, offset, size)
        return file.view(offset - file.start_offset, size)

    def begins(offset: int) -> bool:
        begin = engine.commit_log.begin_offset
        if offset in (begin, positions.visible) or (begin, offset) == (0, 1):
            return True  # a copy of ours that is empty knows the byte at 0
        file = files.find(offset)
        if file is None or offset == file.start_offset:
            return file is not None
        at = offset - file.start_offset
        return resynchronise(file, at, at + 1, budget=SearchBudget(), verify=0) is not None

    return LogSource(
        lambda: positions.visible,
        lambda: engine.commit_log.begin_offset,
        piece,
        lambda: engine.offsets.table,
        begins,
    )


def _whole_records(file: MappedFile, offset: int, size: int) -> int:
    """Bytes of the records that lie in these bytes, where a record begins at `offset`; all of them
    where not one lies in them."""
    position = offset - file.start_offset
    walked = scan_segment(file, position, position + size, verify=0)
    end = walked.end_position
    if end > position + size:
        end = walked.last_record_start - file.start_offset
    return end - position or size
