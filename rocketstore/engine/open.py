"""Opens a store: for writing, in memory when it is dead and read-only, or as a follower.

For writing an open goes through the phases of `phases`, in order, then `wiring` builds the parts. A
dead store opened with mode "r" goes through the same phases over private mappings, so nothing on
disk changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketstore._native.format.scanner import VERIFY_BODY_CRC, VERIFY_RECORD_CRC
from rocketstore.consuming.group_offsets import FollowerOffsets
from rocketstore.engine.clean_shutdown import CleanShutdown, stopped_cleanly
from rocketstore.engine.engine import FollowingEngine, Guard, MemoryEngine, Opened
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
from rocketstore.engine.wiring import OwnFiles, memory_engine, writing_engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.log.commitlog.checkpoint import CheckpointFile, RocketmqCheckpoint
from rocketstore.log.commitlog.running_flags import RunningFlags
from rocketstore.log.follow.follower import Follower
from rocketstore.log.follow.views import FollowerIndex, FollowerPositions
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout import destroy
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.positions_page import boot_id
from rocketstore.log.recovery.missing_segments import missing_segments
from rocketstore.log.recovery.report import RecoveryReport
from rocketstore.stats.statistics import StoreStatistics

if TYPE_CHECKING:
    from rocketstore.engine.engine import Engine
    from rocketstore.log.layout.paths import StoreLayout

logger = logging.getLogger(__name__)

__all__ = ["open_engine", "open_for_writing"]


def open_engine(path: str, mode: str, options: Options) -> Engine:
    """The engine of one open store.

    Raises:
        StoreLockedError, MissingSegmentsError, ConfigError, OSError: as `rocketstore.open` says.
    """
    layout = preflight(path, mode, options.config)
    index_was_there = layout.index.is_dir()
    if mode == "r":
        return _open_to_read(Request(path, layout, options, "private", None, index_was_there))
    make_directories(layout)
    lock: StoreLock | None = None
    opened: WritingEngine | None = None
    try:
        lock = StoreLock.acquire(layout)
        destroy.finish_removal(layout)
        opened = open_for_writing(Request(path, layout, options, "write", lock, index_was_there))
        opened.start()
        return opened
    except BaseException:
        if opened is not None:
            opened.close()  # the lock goes after the threads that run
        elif lock is not None:
            lock.release()
        raise


def _open_to_read(request: Request) -> Engine:
    """A follower where a writer lives, or where nothing has to be recovered; else recovered in
    memory."""
    path, layout, options = request.path, request.layout, request.options
    if options.untrusted:
        return _open_in_memory(replace(request, access="memory", index_was_there=True))
    if StoreLock.probe(layout) is not None:
        return _open_follower(path, layout, options)
    engine = _open_in_memory(request)
    indexed = options.config.index_enabled
    if engine.odd_sizes or not stopped_cleanly(engine.recovery, indexed=indexed):
        return engine
    # Nothing had to be recovered in memory: the files are read, and a writer that comes is
    # followed.
    engine.close()
    fitted = replace(options, config=engine.config)
    return _open_follower(path, layout, fitted, engine.recovery)


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


def _open_follower(
    path: str, layout: StoreLayout, options: Options, stopped: RecoveryReport | None = None
) -> FollowingEngine:
    """The engine of a reader of a store that another process writes or may write.

    `stopped`: the report of an open that found a clean stop; None where there is a writer. Until
    a program writes again the reader believes its bounds.
    """
    config = options.config
    follower = Follower(
        layout,
        verify=VERIFY_BODY_CRC | VERIFY_RECORD_CRC,
        stopped=None if stopped is None else (stopped.begin, stopped.end),
    )
    try:
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
        index=FollowerIndex(index) if config.index_enabled else None,
        source=follower,
        statistics=StoreStatistics(dict),
    )
    return FollowingEngine(opened, follower)


def _missing(layout: StoreLayout, follower: Follower) -> tuple[str, ...]:
    """The segments that the log lacks, logged as errors: their records cannot be read. A writer of
    ours checks its log itself."""
    if follower.writer not in ("java", "none"):
        return ()
    found = missing_segments(layout)
    for text in found:
        logger.error("%s: %s", layout.root, text)
    return tuple(found)
