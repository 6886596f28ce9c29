"""Whether another program wrote last, and where RocketMQ's own recovery would begin to check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketstore._native.format.constants import RECORD_CRC_BYTES
from rocketstore._native.format.scanner import read_message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.commitlog.checkpoint import DISCARDED
from rocketstore.log.recovery.marks import Marks

__all__ = ["rocketmq_start", "shows_another"]

#: Margin that is taken off the times of RocketMQ's checkpoint, ms (format.md 8.3).
MARGIN_MS: Final = 3000
#: Newest files that RocketMQ reads after a clean stop, a count (format.md 14.2).
CLEAN_FILES: Final = 3


def shows_another(files: Sequence[MappedFile], marks: Marks) -> bool:
    """Whether anything shows that another program has written to a log that our checkpoint does not
    describe (decision 0046): `lock`, an earlier open that saw it there, RocketMQ's checkpoint, or a
    record without the checksum that ours have."""
    own = marks.own
    seen = own is not None and (
        own.cut == DISCARDED or own.last_store_timestamp_ms < marks.rocketmq_times[0]
    )
    return marks.theirs or seen or any(_lacks_record_crc(file) for file in files)


def _lacks_record_crc(file: MappedFile) -> bool:
    """Whether the first record of a file does not end with a checksum of its own."""
    try:
        size = read_message(file, 0, file.size, verify=0).size
    except CorruptRecordError:
        return False
    end = file.read(size - RECORD_CRC_BYTES, RECORD_CRC_BYTES)
    return not end.startswith(b"__CRC32#")


def rocketmq_start(files: Sequence[MappedFile], marks: Marks) -> int:
    """RocketMQ's rule, lowered to the file in which the queues end, so that no unit is missing."""
    if marks.derived_end is None:
        return files[0].start_offset
    start = files[max(0, len(files) - CLEAN_FILES)].start_offset
    if not marks.clean:
        start = _crash_start(files, marks)
    below = [f.start_offset for f in files if f.start_offset <= marks.derived_end]
    return min(start, below[-1] if below else files[0].start_offset)


def _crash_start(files: Sequence[MappedFile], marks: Marks) -> int:
    """The newest file whose first record is older than the checkpoint's times, or the first file."""
    physic, logics, index = marks.rocketmq_times
    least = max(0, min(physic, logics) - MARGIN_MS)
    if marks.index_safe:
        least = min(least, index)
    for file in reversed(files):
        try:
            first = read_message(file, 0, file.size, verify=0)
        except CorruptRecordError:
            continue
        if 0 < first.store_timestamp_ms <= least:
            return file.start_offset
    return files[0].start_offset
