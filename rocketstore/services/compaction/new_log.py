"""Writes records of another log into segments of a new one: their bytes, but for number and
place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rocketstore._native.format.codec import crc31, encode_record
from rocketstore._native.format.constants import BLANK_BYTES, BLANK_MAGIC, RECORD_CRC_BYTES
from rocketstore._native.os import syscalls
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.layout.paths import segment_name
from rocketstore.values.system_flags import ROLLED_BACK

__all__ = ["NewLog"]

#: Where a record has its queue offset and its physical offset (format.md 2.1).
NUMBER: Final = slice(20, 28)
PLACE: Final = slice(28, 36)
CRC_NAME: Final = b"__CRC32#\x01"
CRC_DIGITS: Final = 10
#: Bytes that are written in one go, about.
WRITE_BYTES: Final = 4 << 20
#: Topic of records that no consumer is given: that of filler records.
FILLER_TOPIC: Final = "%"


class NewLog:
    """The log begins at its second segment: RocketMQ reads a pre-blank as a record at 0, which must
    lie before the log (format.md 6.3).

    `finish` makes it so long that an open believes its gaps: `GapBudget` asks for bytes of log for
    each queue offset that is skipped. Segments are sparse, so those take no room on the disk.
    """

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._fd = -1
        self._written = 0  # of the segment, without what waits
        self._waiting = bytearray()
        self.begin = self._start = segment_bytes
        self.segments = 0
        #: Sum of the sizes of all records.
        self.record_bytes = 0

    @property
    def end(self) -> int:
        """The physical offset after the last record."""
        return self._start + self._position

    @property
    def _position(self) -> int:
        return self._written + len(self._waiting)

    def append(self, record: bytes, queue_offset: int) -> None:
        """Gives a record its number and its place, and a checksum of its own where it had one.

        Raises OSError as the disk says.
        """
        if self._fd < 0:
            self._open()
        elif self._position + len(record) + BLANK_BYTES > self._segment_bytes:
            self._roll()
        self._waiting += _placed(record, queue_offset, self._start + self._position)
        self.record_bytes += len(record)
        if len(self._waiting) >= WRITE_BYTES:
            self._write()

    def finish(self, skipped_offsets: int, store_timestamp_ms: int) -> None:
        """Called once, after the last record: all is on the disk then. `store_timestamp_ms`: of the
        last record."""
        while self._fd >= 0 and skipped_offsets > self._believed():
            self._roll()
            filler = encode_record(
                topic=FILLER_TOPIC,
                body=b"",
                sys_flag=ROLLED_BACK,
                store_timestamp_ms=store_timestamp_ms,
            )
            self._waiting += _placed(filler, 0, self._start)
        if self._fd >= 0:
            self._close()

    def abandon(self) -> None:
        """Called where the files will be removed."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            syscalls.close(fd)

    def _believed(self) -> int:
        return GapBudget(self.segments * self._segment_bytes).left

    def _open(self) -> None:
        path = self._directory / segment_name(self._start)
        self._fd = syscalls.open(os.fspath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        syscalls.ftruncate(self._fd, self._segment_bytes)
        self.segments += 1
        self._written = 0

    def _roll(self) -> None:
        blank = self._segment_bytes - self._position
        self._waiting += blank.to_bytes(4, "big") + BLANK_MAGIC
        self._close()
        self._start += self._segment_bytes
        self._open()

    def _write(self) -> None:
        syscalls.pwrite(self._fd, self._waiting, self._written)
        self._written += len(self._waiting)
        self._waiting = bytearray()

    def _close(self) -> None:
        self._write()
        syscalls.fsync(self._fd)
        fd, self._fd = self._fd, -1
        syscalls.close(fd)


def _placed(record: bytes, queue_offset: int, physical_offset: int) -> bytearray:
    made = bytearray(record)
    made[NUMBER] = queue_offset.to_bytes(8, "big")
    made[PLACE] = physical_offset.to_bytes(8, "big")
    property_at = len(made) - RECORD_CRC_BYTES
    if made[property_at : property_at + len(CRC_NAME)] == CRC_NAME:
        # Its digits are written the least significant first (format.md 2.6).
        digits = str(crc31(bytes(made[:property_at])))[::-1].ljust(CRC_DIGITS, "0")
        made[-1 - CRC_DIGITS : -1] = digits.encode()
    return made
