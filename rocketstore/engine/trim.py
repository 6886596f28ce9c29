"""Removing whole segments from the front of an open store (D-27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.engine.shutdown import Steps
from rocketstore.errors import BackpressureError

if TYPE_CHECKING:
    from rocketstore.engine.parts import WriteParts
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
    from rocketstore.log.read.reader import Reader

__all__ = ["Trim"]


class Trim:
    """One trim; the caller excludes other trims and a close. `limit_ms`: longest wait for the
    disk."""

    def __init__(
        self,
        write: WriteParts,
        segments: MappedFileQueue,
        queues: ConsumeQueueStore,
        reader: Reader,
        limit_ms: int,
    ) -> None:
        self._write = write
        self._positions = write.positions
        self._segments = segments
        self._queues = queues
        self._reader = reader
        self._limit_ms = limit_ms

    def run(self, before_offset: int | None, before_ms: int | None, held_from: int | None) -> int:
        """The new minimum is durable first, then files go, oldest first. Returns the minimum.
        What begins at `held_from` stays.

        Raises: BackpressureError: the disk took longer than the limit; nothing was trimmed.
            OSError: a file cannot be removed. The next trim tries a segment again, and with the
            next segment that goes a file of a queue or of the index. Segments before one that keeps
            its second name are trimmed.
        """
        write = self._write
        if before_offset is not None and before_offset > self._positions.wrote:
            raise ValueError(
                f"before_offset = {before_offset}: the log ends at {self._positions.wrote}; "
                "for a time use before_time="
            )
        wanted = self._below(before_ms) if before_offset is None else before_offset
        wanted = wanted if held_from is None else min(wanted, held_from)
        begin = self._new_begin(wanted)
        if begin > self._minimum:
            # The last record known to be durable stays: a later open recognises the log by it.
            self._flush_all()
            last = write.checkpointer.save(derived=True).last_record_start
            begin = self._new_begin(min(wanted, last))
        if begin > self._minimum:
            kept = write.live.let_go()
            if kept is not None and kept[0] < begin:
                self._move(kept[0])
                raise kept[1]
            self._move(begin)
        return begin

    def _move(self, begin: int) -> None:
        """Stores the new minimum, then removes files, each though another cannot be removed: a
        queue file must not keep the log on a disk that is full."""
        if begin <= self._minimum:
            return
        write = self._write
        self._positions.minimum = begin
        write.checkpointer.save(derived=True, minimum=begin)
        write.page.publish(self._positions)  # readers in other processes learn why files are gone
        steps = Steps()
        steps.take(self._segments.remove_before, begin)
        steps.take(self._queues.trim, begin)
        if self._write.index is not None:
            steps.take(self._write.index.trim, begin)
        steps.take(self._reader.source.holders.release, begin)
        steps.end()

    @property
    def _minimum(self) -> int:
        return self._reader.source.minimum()

    def _below(self, before_ms: int | None) -> int:
        """End of the last segment whose messages were all stored before `before_ms`."""
        assert before_ms is not None
        now = self._write.clock.now_ms()
        target = self._minimum
        for file in self._segments.files[1:]:
            # The newest message of the files before is not newer than the first of this one. What
            # cannot be read, and a time that is to come, say nothing of their age (D-28).
            first = self._reader.first_store_time(file)
            if first is None or first > now:
                continue
            if first >= before_ms:
                break
            target = file.start_offset
        return target

    def _new_begin(self, wanted: int) -> int:
        """The end of the last segment that may go: below `wanted`, dispatched, and released by the
        flusher, which gives back its second name and its descriptor after the flush."""
        if not self._write.commit_log.log.group.pass_turn(self._limit_ms):
            raise BackpressureError(
                f"a flush has gone on for {self._limit_ms} ms: nothing was trimmed"
            )
        limit = min(wanted, self._positions.dispatched, self._segments.released)
        ends = [file.end_offset for file in self._segments.files[:-1] if file.end_offset <= limit]
        return max(ends, default=self._minimum)

    def _flush_all(self) -> None:
        """Waits until what is in the log now is on disk; no longer than a put would."""
        if not self._write.commit_log.wait_flushed(self._positions.wrote, self._limit_ms):
            raise BackpressureError(
                f"the log was not flushed in {self._limit_ms} ms: nothing was trimmed"
            )
