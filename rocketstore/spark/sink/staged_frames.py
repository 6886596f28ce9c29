"""Staged frames: read and checked, and compared with what is in the log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path

from rocketstore import Message, MessageNotFoundError, Store
from rocketstore.archive import sync_path
from rocketstore.puts import crc32
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.journal import Commit, Staged

__all__ = [
    "check_staged",
    "count_present",
    "frame_start",
    "messages_between",
    "read_chunks",
    "sync_names",
]


def read_chunks(
    files: Sequence[Staged], *, give_back: bool = False
) -> Iterator[tuple[memoryview, int]]:
    """(frames, how many) of every chunk, in order, checked; valid until the next is asked for.
    `give_back`: their pages leave the page cache, for the log's."""
    largest = max((chunk[0] for file in files for chunk in file.chunks), default=0)
    room = memoryview(bytearray(largest))
    for file in files:
        with open_staged(file) as handle:
            position = 0
            for size, frames, crc in file.chunks:
                chunk = room[:size]
                if read_whole(handle, chunk) != size or crc32(chunk) != crc:
                    raise SparkFaceError(
                        "RS_STAGED_DAMAGED", f"{file.path}: not what the task had written"
                    )
                position += size
                if give_back:
                    # From the beginning: what is in memory as one piece goes only as a whole.
                    with contextlib.suppress(OSError):  # a kernel may take no advice
                        os.posix_fadvise(handle.fileno(), 0, position, os.POSIX_FADV_DONTNEED)
                yield chunk, frames


def read_whole(handle: FileIO, room: memoryview) -> int:
    """Bytes read: fewer than there is room for only at the end of the file."""
    done = 0
    while done < len(room) and (count := handle.readinto(room[done:])):
        done += count
    return done


def open_staged(file: Staged) -> FileIO:
    try:
        handle = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        return FileIO(handle, "rb")
    except FileNotFoundError as error:
        raise SparkFaceError(
            "RS_STAGED_LOST",
            f"{file.path} is gone, with {file.rows} messages of a commit; tasks and committer must "
            "see the same directory",
        ) from error


def check_staged(file: Staged) -> None:
    """Raises before anything is appended when a staged file is missing or cut."""
    with open_staged(file) as handle:
        size = os.fstat(handle.fileno()).st_size
    if size != file.size:
        raise SparkFaceError(
            "RS_STAGED_DAMAGED", f"{file.path} has {size} bytes, the task wrote {file.size}"
        )


def frame_start(chunk: memoryview, number: int) -> int:
    """Where frame `number` of a chunk begins."""
    position = 0
    for _ in range(number):
        position += int.from_bytes(chunk[position : position + 4], "big")
    return position


def sync_names(files: Sequence[Staged]) -> None:
    """Their names are durable, as their bytes are, before the journal speaks of them: also those of
    the directories that a task has made for them."""
    runs = {Path(file.path).parent for file in files}
    for directory in runs | {above for run in runs for above in run.parents[:3]}:
        with contextlib.suppress(PermissionError):  # a task that may not look there has made none
            sync_path(directory)


def count_present(messages: Iterable[Message], begun: Commit) -> int:
    """How many of the frames are in the log: those noted, and those among the messages after
    `begun.begin` in their order. No other message is between them, unless others had the store at
    the same time; theirs are known by their content."""
    found, present = iter(messages), begun.present
    for frame in frames_from(begun.files, begun.present):
        expected = Message.from_bytes(frame)
        for message in found:
            if same_message(message, expected):
                break
            if not begun.mixed:
                return present
        else:
            return present
        present += 1
    return present


def frames_from(files: Sequence[Staged], number: int) -> Iterator[memoryview]:
    """One frame after the other, from `number` on."""
    for chunk, frames in read_chunks(files):
        position = 0
        for _ in range(frames):
            end = position + int.from_bytes(chunk[position : position + 4], "big")
            if number:
                number -= 1
            else:
                yield chunk[position:end]
            position = end


def messages_between(store: Store, begin: int, end: int) -> Iterator[Message]:
    """All messages of [begin, end), in the order of the log."""
    segment_size = store.config.commit_log_file_size_bytes
    while begin < end:
        try:
            message = store.get(begin)
        except MessageNotFoundError:
            begin = (begin // segment_size + 1) * segment_size
        else:
            yield message
            begin = message.physical_offset + message.size


def same_message(found: Message, expected: Message) -> bool:
    """All but what the log gives: offsets, store time and host, record CRC."""
    return (
        found.topic == expected.topic
        and found.queue_id == expected.queue_id
        and found.born_timestamp_ms == expected.born_timestamp_ms
        and found.born_host == expected.born_host
        and found.flag == expected.flag
        and found.body == expected.body
        and plain(found) == plain(expected)
    )


def plain(message: Message) -> dict[str, str]:
    return {name: value for name, value in message.properties.items() if name != "__CRC32#"}
