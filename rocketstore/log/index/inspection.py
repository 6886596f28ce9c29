"""Looks at an index when a store is opened: whether it can be believed, else it is dropped, and whether
it has entries for tags, as RocketMQ writes them since 5.4 (format.md 7.5).

No file says whether there are such entries. The newest ones are held against their records: one that
has tags has an entry of `topic#T#tags`, or has none.
"""

from __future__ import annotations

import os
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final

from rocketstore._native.format import index_file
from rocketstore._native.format.scanner import read_message
from rocketstore._native.os import syscalls
from rocketstore.errors import CorruptRecordError, OffsetOutOfRangeError, ReadFailedError
from rocketstore.log.index.segment import names_in
from rocketstore.log.index.store import IndexStore, hash_of
from rocketstore.log.layout.paths import is_safe_topic
from rocketstore.values.system_flags import ROLLED_BACK, TRANSACTION_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rocketstore._native.format.message import Message
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.index.segment import Header, IndexSegment
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue

__all__ = [
    "begins_late",
    "drop_all",
    "has_gaps",
    "has_tag_entries",
    "key_hashes",
    "look_at_index",
    "tags_hash",
    "was_cut_short",
]

#: Records at the begin of a log among which one with keys is looked for, a count.
KEYS_LOOKED_FOR: Final = 4096
#: Files that are looked at, newest first, and entries of each, counts. RocketMQ may have been
#: another release for a while; more than that is not worth an open's time.
FILES: Final = 4
ENTRIES: Final = 64
OFFSET_MAX: Final = (1 << 63) - 1


def look_at_index(
    index: IndexStore, names: Sequence[str], indexed: int | None, *, clean: bool, whole: bool
) -> tuple[bool, int]:
    """Whether the files of an index can be believed, and how many have entries. `names`: of all.
    `indexed`: the physical offset below which a checkpoint knows the index to be whole, after a
    crash; None: no checkpoint counts.

    Of a file its header is held against the entries at both ends and their slots, with `whole`
    against all of them. The last file may be one without entries, of any shape. After a crash it may
    be torn, and so may each file beyond `indexed`, which a loss of power takes in any order:
    recovery cuts there.
    """
    if indexed is not None and not clean:
        files = _begun_below(index.files, indexed)
        names = [name for name in names if files and name <= files[-1].name]
    else:
        files = index.files
    opened = {segment.name for segment in index.files}
    missing = [name for name in sorted(names)[:-1] if name not in opened]
    end, filled, sound = 0, 0, not missing
    for number, segment in enumerate(files, 1):
        header, last = segment.header(), number == len(files)
        if header.empty:
            sound = sound and last
            continue
        filled += 1
        if not last or clean:
            ordered = end <= header.begin_offset <= header.end_offset
            sound = sound and header.sane and ordered and segment.plausible
            sound = sound and (not whole or index_file.validate(segment.file, *segment.shape))
        end = header.end_offset
    return sound, filled


def _begun_below(files: Sequence[IndexSegment], indexed: int) -> Sequence[IndexSegment]:
    """The files up to the last one that has an entry of a record below `indexed`."""
    headers = [segment.header() for segment in files]
    below = (
        number
        for number, header in enumerate(headers, 1)
        if not header.empty and header.begin_offset < indexed
    )
    return files[: max(below, default=0)]


def _has_entry(message: Message) -> bool:
    """Whether the index keeps keys of a record."""
    kind = message.sys_flag & TRANSACTION_TYPE
    named = bool(message.unique_id or message.keys) and kind != ROLLED_BACK
    return named and is_safe_topic(os.fsencode(message.topic))


def begins_late(log: MappedFileQueue, index: IndexStore, minimum: int = 0) -> bool:
    """Whether a record with keys lies before the first entry, or there is no entry at all. It is the
    first record, as a rule. What lies below `minimum` was trimmed, and its keys with it."""
    headers = (segment.header() for segment in index.files)
    first = next((one.begin_offset for one in headers if not one.empty), OFFSET_MAX)
    begin = max(log.begin_offset, minimum)
    return _has_keys(log, begin, first, iter(range(KEYS_LOOKED_FOR)))


def has_gaps(log: MappedFileQueue, index: IndexStore) -> bool:
    """Whether a record with keys lies between the entries of two files: one that was between them
    is gone. It is the first record after the last entry, as a rule."""
    headers = [header for segment in index.files if not (header := segment.header()).empty]
    looks = iter(range(KEYS_LOOKED_FOR + 2 * len(headers)))
    return any(
        _has_keys(log, max(one.end_offset, log.begin_offset), other.begin_offset, looks, one)
        for one, other in pairwise(headers)
    )


def was_cut_short(log: MappedFileQueue, index: IndexStore, offset: int) -> bool:
    """Whether a record with keys lies between the last entry and `offset`, from where the index goes
    on: it was cut at an entry that makes no sense, which hides those after it."""
    headers = [header for segment in index.files if not (header := segment.header()).empty]
    if not headers:
        return False
    begin = max(headers[-1].end_offset, log.begin_offset)
    return _has_keys(log, begin, offset, iter(range(KEYS_LOOKED_FOR)), headers[-1])


def _has_keys(
    log: MappedFileQueue,
    begin: int,
    end: int,
    looks: Iterator[int],
    before: Header | None = None,
) -> bool:
    """Whether a record in [begin, end) has keys, of as many as `looks` allows; the last one that
    `before` has an entry of does not count."""
    file = log.find(begin) if log.files else None
    while file is not None and begin < end and next(looks, None) is not None:
        try:
            message = read_message(file, begin - file.start_offset, file.size, verify=0)
        except (CorruptRecordError, ReadFailedError):
            begin = file.end_offset  # the blank at its end, as a rule
            file = log.find(begin)
            continue
        if _has_entry(message) and (before is None or begin > before.end_offset):
            return True
        begin += message.size
        if begin >= file.end_offset:
            file = log.find(begin)
    return False


def drop_all(index: IndexStore, layout: StoreLayout, *, writes: bool) -> None:
    """Drops all files, before they are made again from the begin of the log, those, too, that cannot
    be opened. What an unsound header says of its entries is no ground for a cut."""
    index.close()
    if not writes:
        return
    try:
        for name in names_in(layout.index):
            syscalls.unlink(os.fspath(layout.index / name))
        syscalls.sync_directory(os.fspath(layout.index))
    except OSError as error:
        index.degrade(error)


# ---- entries for tags ----


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
        for offset, group in groupby(entries, key=lambda entry: entry[1])
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
