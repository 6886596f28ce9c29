"""Every record of a log in physical order, without a queue in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore._native.scanner import read_message
from rocketstore.errors import CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketstore._native.mapped_file import MappedFile
    from rocketstore._native.message import Message

__all__ = ["records"]

BLANK_MAGIC = bytes.fromhex("cbd43194")
BLANK_SIZE_MIN = 8
SIZE_AND_MAGIC = 8


def records(
    segments: Sequence[MappedFile], from_offset: int, to_offset: int, *, verify: int = 0
) -> Iterator[Message]:
    """Records that begin in [from_offset, to_offset), of all topics and transaction types.

    `from_offset` has to be the start of a record or blank; `segments` are in order and without
    gaps. Blanks are stepped over, and so are zeros up to the end of a file that has a successor.
    Anything else that is not a record raises `CorruptRecordError`. `verify` names the checksums
    to test, as in `read_message`.
    """
    for segment in segments:
        offset = max(from_offset, segment.start_offset)
        end = min(to_offset, segment.end_offset)
        last = segment is segments[-1]
        while offset < end:
            position = offset - segment.start_offset
            if segment.size - position < BLANK_SIZE_MIN:
                break  # Too short for a blank: nothing can stand here.
            head = segment.read(position, SIZE_AND_MAGIC)
            if head[4:] == BLANK_MAGIC:
                break
            if not any(head) and segment.find_data(position, segment.size) == segment.size:
                if last:
                    return
                break
            message = read_message(segment, position, segment.size, verify=verify)
            if message.physical_offset != offset:
                raise CorruptRecordError(offset, "physical offset")
            yield message
            offset += message.size
