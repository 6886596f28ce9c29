"""Appends the staged frames of one commit exactly once, whichever process dies meanwhile.

1. Take the store's lock, or hand the commit to the process that has it, by a call. 2. Finish a
commit that another process began. 3. Is this version committed already? Then nothing is left to do.
4. Note the durable end of the log and the staged files in `pending.json`. 5. Append. 6. Wait until
it is durable. 7. Note the version. 8. Remove the staged files, then `pending.json`.

A process that dies before 4 has changed nothing. After 4, the next one compares the log after the
noted end with the frames, record by record, and appends those that are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections import deque
from collections.abc import Sequence

from rocketstore import DurabilityTimeoutError, MessageRejectedError, Store
from rocketstore.spark.errors import SparkFaceError, coded_errors
from rocketstore.spark.sink.cleanup import discard
from rocketstore.spark.sink.journal import (
    Commit,
    Journal,
    Staged,
    check_reused,
    facts_of,
    sink_directory,
)
from rocketstore.spark.sink.staged_frames import (
    check_staged,
    count_present,
    frame_start,
    messages_between,
    read_chunks,
    sync_names,
)
from rocketstore.spark.sink.store_access import Step, journal_lock, no_step, reach

__all__ = ["commit", "commit_to"]

logger = logging.getLogger(__name__)

#: Bytes appended from one sync to the next; a sync goes on while the next bytes are appended.
STEP_BYTES = 16 << 20
#: Syncs that may be under way before they are waited for, count.
STEPS_AHEAD = 4
FLUSH_TIMEOUT_S = 600.0
#: Longest wait for the answer of another process, seconds, and how much it appends in a second at least, bytes.
ANSWER_S = 600.0
SLOWEST_BYTES_S = 1 << 20


def commit(
    path: str,
    writer: str,
    version: int,
    files: Sequence[Staged],
    *,
    lock_timeout_s: float = 60.0,
    reuse: str = "fail",
    on_step: Step = no_step,
) -> bool:
    """Appends `files` unless `writer` has committed `version` already; True when they were
    appended, here or by the process that has the store open and takes commits (`shared=`, or
    `rocketstore.spark.serve`).

    Args:
        reuse: what happens where `version` was committed with other rows: one of `journal.REUSE`.

    Raises:
        SparkFaceError: RS_VERSION_REUSED; RS_STORE_LOCKED after `lock_timeout_s`; RS_STAGED_LOST, RS_STAGED_DAMAGED;
            RS_WRITE_FAILED: the store cannot be opened, or fails while it is appended to;
            RS_HANDED_OVER when a process took the commit and does not answer: its outcome is
            open, until the same version is committed again. RS_JOURNAL_BUSY: commits of others go on there for
            `lock_timeout_s`; nothing was appended.
    """
    asked = {
        "writer": writer,
        "version": version,
        "files": [dataclasses.asdict(file) for file in files],
        "reuse": reuse,
        "wait_ms": int(lock_timeout_s * 1000),
    }
    answer_s = lock_timeout_s + ANSWER_S + sum(file.size for file in files) / SLOWEST_BYTES_S
    largest = max((file.largest_body for file in files), default=0)
    with coded_errors("RS_WRITE_FAILED", path):
        store = reach(path, "sink_commit", asked, lock_timeout_s, answer_s, largest)
        if isinstance(store, bool):
            return store
        with store, journal_lock(path):
            on_step("locked")
            return commit_to(store, path, writer, version, files, on_step, reuse=reuse)


def commit_to(
    store: Store,
    path: str,
    writer: str,
    version: int,
    files: Sequence[Staged],
    on_step: Step = no_step,
    *,
    mixed: bool = False,
    reuse: str = "fail",
) -> bool:
    """The same into an open store, under the journal's lock. `mixed`: others put messages
    meanwhile."""
    journal = Journal(path)
    finish_pending(store, path, journal, on_step, mixed=mixed)
    last = journal.last_version(writer)
    if version < last:
        logger.warning(
            "nothing is written of version %d of %s, which has committed version %d: with a new "
            "checkpoint a stream counts from 0 again; give it another txnAppId, or larger versions",
            version, writer, last,
        )  # fmt: skip
    if version <= last:
        logger.info("%s has committed version %d already", writer, version)
        noted = journal.noted(writer, version)
        if noted is not None and files:
            check_reused(writer, version, noted, files, reuse)
        discard(files)
        return False
    for file in files:
        check_staged(file)
    check_sizes(store, path, files)
    if mixed:  # another process says so; what is begun and never whole would bar all commits
        deque(read_chunks(files), maxlen=0)
    sync_names(files)
    intended = Commit(writer, version, flushed_end(store), tuple(files), mixed=mixed)
    on_step("checked")
    journal.begin(intended)
    on_step("begun")
    append_begun(store, path, journal, intended, on_step)
    finish(store, journal, intended, on_step)
    return True


def check_sizes(store: Store, path: str, files: Sequence[Staged]) -> None:
    """Raises before anything is appended when the store does not take the largest body."""
    largest = max((file.largest_body for file in files), default=0)
    most = store.config.max_message_size_bytes
    if largest > most:
        raise SparkFaceError(
            "RS_REFUSED",
            f"a body has {largest} bytes, {path} takes {most} (max_message_size_bytes, at most "
            "what its files have room for)",
        )


def append_begun(store: Store, path: str, journal: Journal, begun: Commit, on_step: Step) -> None:
    """Appends what is missing. What the store refuses as a whole is not begun any more: it would be
    refused again and again, and every other commit with it."""
    try:
        append(store, begun, on_step)
    except MessageRejectedError as error:
        present = count_present(messages_between(store, begun.begin, flushed_end(store)), begun)
        if present == 0:
            journal.clear()
        raise SparkFaceError(
            "RS_REFUSED", f"{path}: {error}; {present} of {begun.rows} messages were appended"
        ) from error


def flushed_end(store: Store) -> int:
    """The end of the log, durable; other writers may append after it."""
    end = store.end_offset
    store.wait_flushed(end, FLUSH_TIMEOUT_S)
    return end


def finish(store: Store, journal: Journal, intended: Commit, on_step: Step) -> None:
    end = flushed_end(store)
    on_step("flushed")
    journal.note(intended, end, facts_of(intended.files))
    on_step("noted")
    discard(intended.files)
    on_step("discarded")
    journal.clear()


def finish_pending(
    store: Store, path: str, journal: Journal, on_step: Step = no_step, *, mixed: bool = False
) -> None:
    """Brings the commit to its end that a dead committer began."""
    begun = journal.pending()
    if begun is None:
        return
    if journal.last_version(begun.writer) < begun.version:
        end = flushed_end(store)  # what is not durable may not be readable yet
        if end < begun.begin:
            raise SparkFaceError(
                "RS_LOG_TRUNCATED",
                f"{path} ends at {end}, but {begun.begin} was durable when version "
                f"{begun.version} of {begun.writer} began: the store was replaced or cut",
            )
        if begun.begin < store.begin_offset:
            raise SparkFaceError(
                "RS_DATA_LOST",
                f"[{begun.begin}, {store.begin_offset}) of {path} was removed before version "
                f"{begun.version} of {begun.writer} was finished: which of its {begun.rows} "
                "messages were there cannot be known; remove "
                f"{sink_directory(path) / 'pending.json'} to write no more of them",
            )
        for file in begun.files:
            check_staged(file)
        present = count_present(messages_between(store, begun.begin, end), begun)
        logger.warning(
            "finishing version %d of %s: %d of %d messages are in the log",
            begun.version, begun.writer, present, begun.rows,
        )  # fmt: skip
        if present < begun.rows:
            # Others may have put messages since: the next comparison begins after those.
            begun = dataclasses.replace(begun, begin=end, present=present, mixed=mixed)
            journal.begin(begun)
            on_step("resumed")
            append_begun(store, path, journal, begun, on_step)
    finish(store, journal, begun, on_step)


def append(store: Store, intended: Commit, on_step: Step) -> None:
    """Appends all frames but those that are present."""
    present, asked = intended.present, deque([store.end_offset])
    for number, (chunk, frames) in enumerate(read_chunks(intended.files, give_back=True)):
        if present >= frames:
            present -= frames
            continue
        if present:
            chunk = chunk[frame_start(chunk, present) :]
            present = 0
        # Whatever the store promises for each put: here they are waited for together.
        end = store.put_frames(chunk, durability="memory", timeout_s=FLUSH_TIMEOUT_S).end_offset
        if end - asked[-1] >= STEP_BYTES:
            ask_for_sync(store, end)
            asked.append(end)
            if len(asked) > STEPS_AHEAD:
                store.wait_flushed(asked.popleft(), FLUSH_TIMEOUT_S)
        on_step(f"appended {number}")


def ask_for_sync(store: Store, end: int) -> None:
    with contextlib.suppress(DurabilityTimeoutError):
        store.wait_flushed(end, 0)
