"""What a checkpoint says of the log costs no more than a record may have."""

from __future__ import annotations

from typing import Any

from rocketstore._native.format.codec import crc32c
from rocketstore.log.commitlog import checkpoint


class LongFile:
    """A file of the log of 2 GiB, nothing of which is in memory."""

    start_offset = 0
    end_offset = (1 << 31) - 1
    read_bytes = 0

    def find(self, offset: int) -> LongFile:
        return self

    def read(self, position: int, count: int) -> bytes:
        self.read_bytes += count
        return bytes(count)


def test_a_blank_that_fills_a_long_file_is_not_read_whole() -> None:
    """One length of a hostile file had an open take 2 GiB of memory."""
    log: Any = LongFile()
    fields = checkpoint._record_fields(log, log.end_offset, 16_384)
    assert log.read_bytes == checkpoint.RECORD_BYTES_MOST
    assert fields["last_record_size"] == log.end_offset - 16_384
    assert fields["last_record_crc"] == crc32c(bytes(log.read_bytes))
