"""Opens a store: for writing, in memory when it is dead and read-only, or as a follower.

For writing an open goes through the phases of `phases`, in order, then `wiring` builds the parts. A
dead store opened with mode "r" goes through the same phases over private mappings, so nothing on
disk changes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

from rocketstore._native.format.scanner import VERIFY_BODY_CRC, VERIFY_RECORD_CRC
from rocketstore._native.sync.futex import EventCount
from rocketstore.config import StoreConfig
from rocketstore.consuming.followed_offsets import FollowerOffsets
from rocketstore.engine.engine import (
    Engine,
    FollowingEngine,
    Guard,
    MemoryEngine,
    Opened,
    SucceedingEngine,
)
from rocketstore.engine.open_options import Options, Request
from rocketstore.engine.phases import (
    Opening,
    Recovered,
    claim,
    derive,
    load,
    record_crc,
    recover,
)
from rocketstore.engine.preflight import preflight
from rocketstore.engine.shutdown import CleanShutdown, stopped_cleanly
from rocketstore.engine.wiring import OwnFiles, memory_engine, writing_engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    HINTS,
    ConfigError,
    MissingSegmentsError,
    StoreLockedError,
    StoreRecoveringError,
)
from rocketstore.log.commitlog.checkpoint import CheckpointFile, RocketmqCheckpoint
from rocketstore.log.commitlog.running_flags import RunningFlags
from rocketstore.log.follow.follower import Follower
from rocketstore.log.follow.views import FollowerIndex, FollowerPositions
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout import destroy
from rocketstore.log.layout.identity import StoreIdentity, file_state
from rocketstore.log.layout.lock import HELD_HERE, RETRY_MS, StoreLock, describe_recovery
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import boot_id
from rocketstore.log.recovery.missing_segments import has_both_ends, missing_segments
from rocketstore.log.recovery.report import RecoveryReport
from rocketstore.stats.statistics import StoreStatistics

logger = logging.getLogger(__name__)

#: Longest wait of a reader's open for a process that recovers the store, or has not dispatched all
#: that it shows, and its step, seconds.
RECOVERY_S: Final = 1.0
READY_STEP_S: Final = 0.002
#: Pause of a writer's open that waits for the lock, ms.
WAIT_STEP_MS: Final = 100

__all__ = ["follow", "open_engine", "open_for_writing", "planned_recovery"]


def open_engine(path: str, mode: str, options: Options) -> Engine:
    """The engine of one open store.

    Raises:
        StoreLockedError, MissingSegmentsError, ConfigError, OSError: as `rocketstore.open` says.
    """
    if mode == "r":
        layout = preflight(path, mode, options.config, force=options.force)
        index_was_there = layout.index.is_dir()
        return _open_to_read(Request(path, layout, options, "private", None, index_was_there))
    held: list[StoreLock] = [] if options.lock is None else [options.lock]
    opened: WritingEngine | None = None
    try:
        request = _locked(path, mode, options, held)
        destroy.finish_removal(request.layout)
        opened = open_for_writing(request)
        opened.start()
        return opened
    except BaseException:
        if opened is not None:
            opened.close()  # the lock goes after the threads that run
        for lock in held:
            lock.release()
        raise


def _locked(path: str, mode: str, options: Options, held: list[StoreLock]) -> Request:
    """The request of a writer that has the lock, for which it waits `options.wait_s`. The lock is
    added to `held`, also where a signal's handler raises right after.

    Each try looks at the directory once more: its holder may make, change or remove the store
    until it lets go.
    """
    began, index_was_there = time.monotonic(), True
    retry_ms = 0 if options.at_once else RETRY_MS
    while True:
        layout = preflight(path, mode, options.config, force=options.force)
        # A try that failed may have made it itself.
        index_was_there = index_was_there and layout.index.is_dir()
        make_directories(layout)
        try:
            if not held:
                held.append(StoreLock.acquire(layout, retry_ms))
            return Request(path, layout, options, "write", held[0], index_was_there)
        except StoreLockedError as error:
            waited_s = time.monotonic() - began
            left_ms = math.ceil((options.wait_s - waited_s) * 1000)
            if not options.wait_s or error.remedy == HELD_HERE:  # waiting would not help
                raise
            if left_ms <= 0:
                raise StoreLockedError(error.path, error.holder, error.remedy, waited_s) from None
        EventCount().wait(0, min(WAIT_STEP_MS, left_ms))
        retry_ms = min(RETRY_MS, left_ms)


def _open_to_read(request: Request) -> Engine:
    """A follower where a writer lives, or where nothing has to be recovered; else recovered in
    memory until a writer comes."""
    engine = _open_as_it_is(request)
    lacks = engine.recovery.missing and not request.options.force
    # A writer has all of its files: this reader looks at another place.
    if lacks and (StoreLock.probe(request.layout) is not None or not has_both_ends(request.layout)):
        what = "; ".join(engine.recovery.missing)
        engine.close()
        log = request.layout.logs[0]
        raise MissingSegmentsError(f"{log}: {what}; {HINTS['force_reader']}")
    return engine


def _open_as_it_is(request: Request) -> Engine:
    """As `_open_to_read`, also where files of the log are missing."""
    layout = request.layout
    if request.options.untrusted:
        return _open_in_memory(replace(request, access="memory", index_was_there=True))
    identity, lock = StoreIdentity(layout), file_state(layout.lock)
    try:
        engine = _open_once(request, RECOVERY_S)
        if isinstance(engine, MemoryEngine):
            again = partial(_open_once, request, 0.0)
            return SucceedingEngine(engine, again, lock, identity)
    except BaseException:
        identity.close()
        raise
    identity.close()
    return engine


def _open_once(request: Request, wait_s: float) -> FollowingEngine | MemoryEngine:
    path, layout, options = request.path, request.layout, request.options
    if StoreLock.probe(layout) is not None:
        return FollowingEngine(*follow(path, layout, options, wait_s=wait_s))
    engine = _open_in_memory(request)
    indexed = options.config.index_enabled
    report = engine.recovery
    made_in_memory = report.refilled_queues or report.unplaced_messages
    if engine.odd_files or made_in_memory or not stopped_cleanly(report, indexed=indexed):
        return engine
    # Nothing had to be recovered in memory: the files are read, and a writer that comes is
    # followed.
    engine.close()
    fitted = replace(options, config=engine.config)
    return FollowingEngine(*follow(path, layout, fitted, engine.recovery, wait_s=wait_s))


def open_for_writing(
    request: Request, replace_derived: Callable[[Recovered], Recovered] | None = None
) -> WritingEngine:
    """Recovers a store whose lock this process has. No worker runs yet.

    `replace_derived`: called once after recovery, may replace the queues and the index on disk.
    """
    opening = _begin(request)
    try:
        claimed = claim(opening)
        assert request.lock is not None
        assert claimed.page is not None
        loaded = load(opening, claimed)
        recovered = recover(opening, claimed, loaded)
        if replace_derived is not None:
            recovered = replace_derived(recovered)
        derived = derive(opening, claimed, recovered)
        own = OwnFiles(
            lock=request.lock,
            page=claimed.page,
            own_file=opening.own_file,
            rocketmq_file=opening.rocketmq_file,
            checkpoint=replace(derived.checkpoint, boot_id=boot_id(), run_id=claimed.run_id),
            record_crc=record_crc(request, loaded.state),
        )
        return writing_engine(derived.parts, own)
    except BaseException as error:
        _undo(opening, error)
        raise


def _open_in_memory(request: Request) -> MemoryEngine:
    """Recovers a dead store over private mappings, or copies; nothing on disk changes."""
    opening = _begin(request)
    try:
        claimed = claim(opening)
        loaded = load(opening, claimed)
        recovered = recover(opening, claimed, loaded)
        return memory_engine(derive(opening, claimed, recovered).parts)
    except BaseException as error:
        _undo(opening, error)
        raise


def planned_recovery(path: str, options: Options) -> tuple[RecoveryReport, int]:
    """What an open for writing would find and do to the log, and up to where the queues should have
    all units. It takes no lock, changes nothing, and leaves queues and index out.

    Raises:
        ConfigError, OSError: as `open_engine`.
    """
    layout = preflight(path, "r", options.config, force=True)
    opening = _begin(Request(path, layout, options, "private", None, layout.index.is_dir()))
    with opening.undo as undo:
        claimed = claim(opening)
        loaded = load(opening, claimed)
        undo.callback(loaded.log.close)
        undo.callback(loaded.queues.close)
        recovered = recover(opening, claimed, loaded)
        return recovered.report, recovered.compared_to


def _begin(request: Request) -> Opening:
    layout, undo = request.layout, ExitStack()
    own_file = CheckpointFile(layout.own_checkpoint)
    undo.callback(own_file.close)
    rocketmq_file = RocketmqCheckpoint(layout.checkpoint)
    undo.callback(rocketmq_file.close)
    return Opening(request, own_file, rocketmq_file, CleanShutdown(layout, own_file), undo)


def _undo(opening: Opening, error: BaseException) -> None:
    """Restores the clean stop, then closes what the phases opened, threads first, each though
    another failed."""
    with opening.undo:
        opening.stop.restore(error)


def follow(
    path: str,
    layout: StoreLayout,
    options: Options,
    stopped: RecoveryReport | None = None,
    *,
    wait_s: float,
) -> tuple[Opened, Follower]:
    """What the engine is made of that reads a store which another process writes or may write.

    `stopped`: the report of an open that found a clean stop; None where there is a writer. Until
    a program writes again the reader believes its bounds.

    Raises:
        StoreRecoveringError: a process has not recovered or rebuilt the store after `wait_s`
            seconds.
    """
    follower = Follower(
        layout,
        verify=VERIFY_BODY_CRC | VERIFY_RECORD_CRC,
        stopped=None if stopped is None else (stopped.begin, stopped.end),
    )
    try:
        _wait_until_ready(path, layout, follower, wait_s)
        config = _fitted(options.config, follower)
        offsets = FollowerOffsets(layout)
        offsets.look()
        visible = follower.end()
        report = stopped or RecoveryReport(
            mode="following",
            begin=follower.minimum(),
            start=visible,
            end=visible,
            missing=_missing(layout, follower),
        )
    except BaseException:
        follower.close()
        raise
    index = IndexStore(layout, "read", config.index_slots, config.index_entries)
    opened = Opened(
        path=path,
        layout=layout,
        config=config,
        guard=Guard(path, RunningFlags()),
        positions=FollowerPositions(follower),
        offsets=offsets,
        recovery=report,
        index=FollowerIndex(index, follower) if config.index_enabled else None,
        source=follower,
        statistics=StoreStatistics(dict),
    )
    return opened, follower


def _wait_until_ready(path: str, layout: StoreLayout, follower: Follower, wait_s: float) -> None:
    """Until the store is recovered: an empty view would look like an empty store. Then until what
    was acknowledged before the open is in its queues: the writer dispatches in a thread of its own.
    A dispatcher that makes no progress does not keep readers from what it did."""
    deadline = time.monotonic() + wait_s
    acknowledged: int | None = None
    while True:
        late = time.monotonic() >= deadline
        if follower.writer == "recovering":
            acknowledged = None
            if late:
                raise StoreRecoveringError(path, describe_recovery(layout))
        else:
            acknowledged = follower.visible() if acknowledged is None else acknowledged
            if late or not follower.lacks(acknowledged):
                return
        time.sleep(READY_STEP_S)
        follower.look()


def _fitted(config: StoreConfig, follower: Follower) -> StoreConfig:
    """The size of log files is that of the files; one that was given and disagrees is an error."""
    size = follower.segment_size
    if size in (0, config.commit_log_file_size_bytes):
        return config
    if "commit_log_file_size_bytes" in config.given:
        raise ConfigError(
            "commit_log_file_size_bytes",
            config.commit_log_file_size_bytes,
            f"the files of this store have {size}",
        )
    return config.replace(commit_log_file_size_bytes=size)


def _missing(layout: StoreLayout, follower: Follower) -> tuple[str, ...]:
    """The segments that the log lacks, logged as errors: their records cannot be read. A writer of
    ours checked its log itself, when it opened."""
    found = follower.lacks_files()
    if follower.writer in ("java", "none"):
        found = missing_segments(layout)
    for text in found:
        logger.error("%s: %s", layout.root, text)
    return tuple(found)
