"""Appends the staged frames of one commit, exactly once, whatever dies on the way.

1. Take the store's lock. 2. Finish a commit that somebody else began. 3. Is this version committed
already? Then nothing is left to do. 4. Note the durable end of the log and the staged files in
`pending.json`. 5. Append. 6. Wait until it is durable. 7. Note the version. 8. Remove the
staged files, then `pending.json`.

Who dies before 4 has changed nothing. After 4, the next one compares the log behind the noted end with
the frames, record by record, and appends those that are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import rocketstore
from rocketstore import Message, MessageNotFoundError, Store, StoreLockedError
from rocketstore.spark.failures import SparkFaceError
from rocketstore.spark.journal import Commit, Journal, Staged, sink_directory

__all__ = ["commit", "discard", "finish_pending", "open_locked"]

logger = logging.getLogger(__name__)

#: Appended, not yet known to be on disk: so much may be at once.
AHEAD_BYTES = 32 << 20
FLUSH_TIMEOUT_S = 600.0
RETRY_S = 0.1
ORPHAN_AGE_S = 7 * 24 * 3600.0

Step = Callable[[str], None]


def no_step(name: str) -> None:
    """Tests kill the process here."""


def commit(
    path: str,
    writer: str,
    version: int,
    files: Sequence[Staged],
    *,
    lock_timeout_s: float = 60.0,
    on_step: Step = no_step,
) -> bool:
    """Appends `files` unless `writer` has committed `version` already; True when they were appended.

    Raises:
        SparkFaceError: RS_STORE_LOCKED after `lock_timeout_s`; RS_STAGED_LOST, RS_STAGED_DAMAGED.
    """
    with open_locked(path, lock_timeout_s) as store:
        on_step("locked")
        journal = Journal(path)
        finish_pending(store, path, journal, on_step)
        if version <= journal.last_version(writer):
            logger.info("%s has committed version %d already", writer, version)
            discard(files)
            return False
        for file in files:
            check_staged(file)
        store.wait_flushed(store.end_offset, FLUSH_TIMEOUT_S)
        intended = Commit(writer, version, store.end_offset, tuple(files))
        on_step("checked")
        journal.begin(intended)
        on_step("begun")
        append(store, intended, on_step)
        finish(store, journal, intended, on_step)
    remove_orphans(path)
    return True


def finish(store: Store, journal: Journal, intended: Commit, on_step: Step) -> None:
    store.wait_flushed(store.end_offset, FLUSH_TIMEOUT_S)
    on_step("flushed")
    journal.note(intended, store.end_offset)
    on_step("noted")
    discard(intended.files)
    on_step("discarded")
    journal.clear()


def finish_pending(store: Store, path: str, journal: Journal, on_step: Step = no_step) -> None:
    """Brings the commit to its end that a dead committer began."""
    begun = journal.pending()
    if begun is None:
        return
    if journal.last_version(begun.writer) < begun.version:
        if store.end_offset < begun.begin:
            raise SparkFaceError(
                "RS_LOG_TRUNCATED",
                f"{path} ends at {store.end_offset}, but {begun.begin} was durable when version "
                f"{begun.version} of {begun.writer} began: the store was replaced or cut",
            )
        for file in begun.files:
            check_staged(file)
        present = count_present(store, begun)
        logger.warning(
            "finishing version %d of %s: %d of %d messages are in the log",
            begun.version, begun.writer, present, begun.rows,
        )  # fmt: skip
        if present < begun.rows:
            # Others may have put messages since: the next comparison begins behind those.
            store.wait_flushed(store.end_offset, FLUSH_TIMEOUT_S)
            begun = dataclasses.replace(begun, begin=store.end_offset, present=present)
            journal.begin(begun)
            on_step("resumed")
            append(store, begun, on_step)
    finish(store, journal, begun, on_step)


def open_locked(path: str, timeout_s: float) -> Store:
    """The store, open for writing; waits for whoever holds it."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return rocketstore.open(path, "rw", durability="os")
        except StoreLockedError as error:
            if time.monotonic() >= deadline:
                raise SparkFaceError(
                    "RS_STORE_LOCKED",
                    f"{path} is held by {error.holder} for {timeout_s:g} s; close it there, or "
                    "give the option lockTimeout more seconds",
                ) from error
            time.sleep(RETRY_S)


def append(store: Store, intended: Commit, on_step: Step) -> None:
    """Appends all frames but those that are present."""
    waiting, present = 0, intended.present
    for number, (chunk, frames) in enumerate(read_chunks(intended.files)):
        if present >= frames:
            present -= frames
            continue
        if present:
            chunk = chunk[frame_start(chunk, present) :]
            present = 0
        result = store.put_frames(chunk, timeout_s=FLUSH_TIMEOUT_S)
        waiting += len(chunk)
        if waiting >= AHEAD_BYTES:
            store.wait_flushed(result.end_offset, FLUSH_TIMEOUT_S)
            waiting = 0
        on_step(f"appended {number}")


def read_chunks(files: Sequence[Staged]) -> Iterator[tuple[memoryview, int]]:
    """(frames, how many) of every chunk, in order, checked."""
    for file in files:
        with open_staged(file) as handle:
            for size, frames, crc in file.chunks:
                chunk = handle.read(size)
                if len(chunk) != size or zlib.crc32(chunk) != crc:
                    raise SparkFaceError(
                        "RS_STAGED_DAMAGED", f"{file.path}: not what the task had written"
                    )
                yield memoryview(chunk), frames


def open_staged(file: Staged) -> BinaryIO:
    try:
        return open(file.path, "rb")
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


def count_present(store: Store, begun: Commit) -> int:
    """How many of the frames are in the log: those noted, and those that stand from `begun.begin` on,
    one after another. Nobody else has the lock while frames are appended, so they are not mixed."""
    offset, present, noted = begun.begin, 0, begun.present
    for chunk, frames in read_chunks(begun.files):
        position = 0
        for _ in range(frames):
            end = position + int.from_bytes(chunk[position : position + 4], "big")
            if present >= noted:
                found = message_at(store, offset)
                if found is None or not same_message(
                    found, Message.from_bytes(chunk[position:end])
                ):
                    return present
                offset = found.physical_offset + found.size
            position, present = end, present + 1
    return present


def message_at(store: Store, offset: int) -> Message | None:
    """The first message at or behind `offset`: there, or at the begin of the next segment."""
    segment_size = store.config.commit_log_file_size_bytes
    for start in (offset, (offset // segment_size + 1) * segment_size):
        if start >= store.end_offset:
            return None
        with contextlib.suppress(MessageNotFoundError):
            return store.get(start)
    return None


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


def discard(files: Sequence[Staged]) -> None:
    """Removes staged files, and their directories when those are empty."""
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file.path)
    for directory in {os.path.dirname(file.path) for file in files}:
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def remove_orphans(path: str, age_s: float = ORPHAN_AGE_S) -> int:
    """Removes what dead tasks have staged and nobody has touched for a week; how many files."""
    removed = 0
    oldest = time.time() - age_s
    for run in _directories(sink_directory(path) / "staging"):
        for file in run.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if file.stat().st_mtime < oldest:
                    file.unlink()
                    removed += 1
        with contextlib.suppress(OSError):
            if run.stat().st_mtime < oldest:
                run.rmdir()
    return removed


def _directories(path: Path) -> list[Path]:
    return [entry for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []
