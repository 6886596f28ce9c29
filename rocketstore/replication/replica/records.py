"""Bytes of a log as they come, to whole records that were checked.

A copy appends whole records and whole blanks only, so its log ends at a border at any moment. What
has come of a record waits in memory, in place: the scan of the log's own files checks it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rocketstore._native.format.constants import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from rocketstore._native.format.scanner import (
    VERIFY_BODY_CRC,
    VERIFY_LENIENT,
    VERIFY_RECORD_CRC,
    scan_segment,
)
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import ReplicationError
from rocketstore.replication.protocol.epochs import OFFSET_MAX

__all__ = ["RecordAssembler", "RecordChunk"]

#: Memory in which records are put together, bytes; more for a record that is larger.
WINDOW_BYTES: Final = 4 << 20
#: Size and magic of a record or a blank.
HEAD_BYTES: Final = 8
MAGICS: Final = (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)


class RecordChunk(NamedTuple):
    """Whole records, or a blank, of one segment. `data` is valid until the next `take`."""

    offset: int
    data: memoryview
    #: Physical offset of the last record or blank; -1: not known.
    last_record: int
    #: Its store time, in ms; 0: not known.
    stored_ms: int


class RecordAssembler:
    """One log that arrives, from `offset` on, in segments of `segment_bytes`.

    `record_most`: a longer record is refused, bytes. `append_most`: a chunk is no longer than this,
    bytes; at least twice `record_most`.
    """

    def __init__(
        self, offset: int, segment_bytes: int, *, record_most: int, append_most: int
    ) -> None:
        self._segment_bytes = segment_bytes
        self._record_most = record_most
        self._append_most = append_most
        self._whole = offset  # up to where it was given away
        self._end = offset
        self._memory = MappedFile.anonymous(0, WINDOW_BYTES)
        self._window: MappedFile | None = None

    @property
    def end(self) -> int:
        """Up to where bytes have come."""
        return self._end

    def take(self, data: memoryview) -> Iterator[RecordChunk]:
        """The next bytes, which may be of more than one segment.

        Raises:
            ReplicationError: they are no records of this place in a log.
        """
        while len(data):
            window = self._room()
            part = data[: window.end_offset - self._end]
            window.write(self._end - window.start_offset, part)
            self._end += len(part)
            data = data[len(part) :]
            yield from self._chunks(window)

    def _room(self) -> MappedFile:
        """Memory with room for the next byte, which holds what is not whole yet."""
        window = self._window
        if window is not None and self._end < window.end_offset:
            return window
        segment_end = self._segment_end(self._whole)
        kept = b""
        if window is not None and self._whole < self._end:
            kept = window.read(self._whole - window.start_offset, self._end - self._whole)
        size = max(WINDOW_BYTES, 2 * len(kept))
        if size > self._memory.size:
            self._memory = MappedFile.anonymous(0, size)
        window = self._memory.part(self._whole, min(size, segment_end - self._whole))
        window.write(0, kept)
        self._window = window
        return window

    def _segment_end(self, offset: int) -> int:
        end = offset - offset % self._segment_bytes + self._segment_bytes
        if end > OFFSET_MAX - self._segment_bytes:  # the next file is made in advance
            raise ReplicationError(
                f"the master sent bytes at {offset}: no file of {self._segment_bytes} bytes can "
                "follow theirs"
            )
        return end

    def _chunks(self, window: MappedFile) -> Iterator[RecordChunk]:
        start = window.start_offset
        verify = VERIFY_BODY_CRC | VERIFY_RECORD_CRC | VERIFY_LENIENT
        while self._whole < self._end:
            position, come = self._whole - start, self._end - start
            # The last record may end after `to`.
            to = min(come, position + self._append_most - self._record_most)
            result = scan_segment(window, position, to, verify=verify)
            end, last, stored_ms = (
                result.end_position,
                result.last_record_start,
                result.last_store_timestamp_ms,
            )
            if end > come:  # what is missing of the last record was read as what was there before
                end, last, stored_ms = last - start, -1, 0
            if end == position:
                end += self._first(window, position, result.status)
                last, stored_ms = self._whole, 0
                if end == position:
                    return
            offset, self._whole = self._whole, start + end
            yield RecordChunk(
                offset, window.view(position, end - position), last, max(stored_ms, 0)
            )

    def _first(self, window: MappedFile, position: int, status: str) -> int:
        """The size of what begins at `position` and is no record that has come as a whole: a blank
        that has; 0 for what may become either."""
        have = self._end - self._whole
        if have < HEAD_BYTES:
            return 0
        head = window.read(position, HEAD_BYTES)
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        left = self._segment_end(self._whole) - self._whole
        blank = magic == MAGIC_BLANK
        if magic not in MAGICS or size < HEAD_BYTES:
            raise self._no_record(f"{status}; a size of {size}, {left} before the end of its file")
        if size > left or (blank and size != left):
            raise self._other_files(size, left, blank=blank)
        if size > (self._append_most if blank else self._record_most):
            option = "write_buffer_bytes" if blank else "max_message_size_bytes"
            raise ReplicationError(
                f"{'a blank' if blank else 'a record'} of {size} bytes at {self._whole}: open the "
                f"copy with {option}={size} or more"
            )
        if have < size:
            return 0
        if blank:
            return size
        raise self._no_record(status)

    def _other_files(self, size: int, left: int, *, blank: bool) -> ReplicationError:
        """What does not end where this copy's file does: the first file of the master shows it."""
        own, end = self._segment_bytes, self._whole + left
        sizes = f"larger than {own}"
        if blank and size < left:
            sizes = f"{own - left + size}, not {own}"
        return ReplicationError(
            f"the master sent {'a blank' if blank else 'a record'} of {size} bytes at {self._whole}"
            f", where the file of this copy ends at {end}: if these are messages, the master has "
            f"files of another size; make a new copy with commit_log_file_size_bytes {sizes}"
        )

    def _no_record(self, why: str) -> ReplicationError:
        return ReplicationError(f"the master sent what is no record at {self._whole}: {why}")
