"""Whether an index has entries for tags, as RocketMQ writes them since 5.4 (format.md 7.5).

No file says so. The newest entries are held against their records: one that has tags has an entry
of `topic#T#tags`, or has none.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from rocketstore._native.format import index_file
from rocketstore._native.format.scanner import read_message
from rocketstore.errors import CorruptRecordError, OffsetOutOfRangeError, ReadFailedError
from rocketstore.log.index.store import IndexStore, hash_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketstore._native.format.message import Message
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.index.segment import IndexSegment
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["has_tag_entries", "key_hashes", "tags_hash"]

#: Files that are looked at, newest first, and entries of each, counts. RocketMQ may have been
#: another release for a while; more than that is not worth an open's time.
FILES: Final = 4
ENTRIES: Final = 64


def key_hashes(message: Message) -> set[int]:
    """What the index may keep of a message, tags included."""
    texts = [message.unique_id, *message.keys]
    found = {hash_of(message.topic, text) for text in texts if text}
    return found | ({tags_hash(message)} if message.tags else set())


def tags_hash(message: Message) -> int:
    """What RocketMQ since 5.4 keeps of the tags of a message."""
    return hash_of(message.topic, f"T#{message.tags}")


def has_tag_entries(
    layout: StoreLayout, shape: tuple[int, int], find: Callable[[int], MappedFile | None]
) -> bool | None:
    """Whether the index of a store has the tags of its newest records; None: nothing shows it.

    `find` gives the file of the log that has a physical offset.
    """
    index = IndexStore(layout, "read", *shape)
    index.load()
    try:
        seen = None
        for segment in index.files[: -FILES - 1 : -1]:
            for told in _told_by(segment, find):
                if told:
                    return True
                seen = False
    finally:
        index.close()
    if seen is None and layout.rocksdb.is_dir():
        return True
    return seen


def _told_by(segment: IndexSegment, find: Callable[[int], MappedFile | None]) -> Iterator[bool]:
    """Of each record with tags that the newest entries name: whether one of them is of its tags.

    The first record may have entries before these, the last may lack some after a crash.
    """
    try:
        last = segment.header().index_count - 1
        first = max(1, last - ENTRIES + 1)
        entries = [
            index_file.entry(segment.file, *segment.shape, number)
            for number in range(first, last + 1)
        ]
    except ReadFailedError:
        return
    groups = [
        (offset, {key_hash for key_hash, *_ in group})
        for offset, group in itertools.groupby(entries, key=lambda entry: entry[1])
    ]
    for place, (offset, hashes) in enumerate(groups):
        tags = _tags_at(offset, find)
        if tags is None:
            continue
        if tags in hashes:
            yield True
        elif 0 < place < len(groups) - 1:
            yield False


def _tags_at(offset: int, find: Callable[[int], MappedFile | None]) -> int | None:
    """The hash of the tags of a record; None where there is no record, or none with tags."""
    file = find(offset)
    if file is None:
        return None
    try:
        message = read_message(file, offset - file.start_offset, file.size, verify=0)
        return tags_hash(message) if message.tags else None
    except (CorruptRecordError, OffsetOutOfRangeError, ReadFailedError):
        return None
