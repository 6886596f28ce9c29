"""Stale bytes after the last record of a log that RocketMQ wrote with `writeWithoutMmap`
(format.md 1.2): since 5.5.0 each append is filled up to the end of its page with what the buffer
held before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["is_padding"]

PAGE_BYTES: Final = 4096
#: Where a record names its own physical offset.
OWN_OFFSET_AT: Final = 28


def is_padding(layout: StoreLayout, file: MappedFile, position: int) -> bool:
    """Whether what is at `position`, where the log ends, may be such bytes: zeros from the end
    of the page on, and no record that names this place, which would be a damaged one.

    Only for a store that RocketMQ stopped cleanly.
    """
    page_end = min(file.size, -(-position // PAGE_BYTES) * PAGE_BYTES)
    if not layout.rocksdb.is_dir() or page_end == position:
        return False
    if file.find_data(page_end, file.size) < file.size:
        return False
    stale = file.read(position, page_end - position)
    named = int.from_bytes(stale[OWN_OFFSET_AT : OWN_OFFSET_AT + 8], "big", signed=True)
    return len(stale) < OWN_OFFSET_AT + 8 or named != file.start_offset + position
