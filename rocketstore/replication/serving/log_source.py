"""The log of a master as it is sent to replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = ["LogSource", "log_source_of"]


class LogSource:
    """The log as a sender reads it."""

    def __init__(
        self,
        end: Callable[[], int],
        begin: Callable[[], int],
        piece: Callable[[int, int], memoryview | None],
        groups: Callable[[], Mapping[str, object]],
    ) -> None:
        """`end()`: what may be sent ends here; `piece(offset, most)`: bytes of one segment from an
        offset on, None if the log has none there; `groups()`: stored offsets."""
        self.end = end
        self.begin = begin
        self.piece = piece
        self.groups = groups


def log_source_of(engine: WritingEngine) -> LogSource:
    """What is visible in the log of an open store."""
    positions, files = engine.positions, engine.commit_log.queue

    def piece(offset: int, most: int) -> memoryview | None:
        file = files.find(offset)
        if file is None:
            return None
        size = min(positions.visible, file.end_offset, offset + most) - offset
        return file.view(offset - file.start_offset, size)

    return LogSource(
        lambda: positions.visible,
        lambda: engine.commit_log.begin_offset,
        piece,
        lambda: engine.offsets.table,
    )
