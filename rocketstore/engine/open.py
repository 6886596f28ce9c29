"""Opens a store: for writing, in memory when it is dead and read-only, or as a follower.

For writing an open goes through the phases of `phases`, in order, then `wiring` builds the parts. A
dead store opened with mode "r" goes through the same phases over private mappings, so nothing on
disk changes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketstore.engine.clean_shutdown import CleanShutdown, stopped_cleanly
from rocketstore.engine.engine import MemoryEngine
from rocketstore.engine.follow import open_follower
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
from rocketstore.log.layout import destroy
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.positions_page import boot_id

if TYPE_CHECKING:
    from rocketstore.engine.engine import Engine

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
        return open_follower(path, layout, options)
    engine = _open_in_memory(request)
    indexed = options.config.index_enabled
    if engine.odd_sizes or not stopped_cleanly(engine.recovery, indexed=indexed):
        return engine
    # Nothing had to be recovered in memory: the files are read, and a writer that comes is
    # followed.
    engine.close()
    fitted = replace(options, config=engine.config)
    return open_follower(path, layout, fitted, engine.recovery)


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
