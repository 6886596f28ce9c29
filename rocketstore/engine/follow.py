"""Opens a store with mode "r" that another process writes: nothing is locked, nothing is
written."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketstore._native.format.scanner import VERIFY_BODY_CRC, VERIFY_RECORD_CRC
from rocketstore.consuming.group_offsets import FollowerOffsets
from rocketstore.engine.engine import FollowingEngine, Opened
from rocketstore.engine.guard import Guard
from rocketstore.log.commitlog.running_flags import RunningFlags
from rocketstore.log.follow.follower import Follower
from rocketstore.log.follow.views import FollowerIndex, FollowerPositions
from rocketstore.log.index.store import IndexStore
from rocketstore.log.recovery.missing_segments import missing_segments
from rocketstore.log.recovery.report import RecoveryReport
from rocketstore.stats.statistics import StoreStatistics

if TYPE_CHECKING:
    from rocketstore.engine.open_options import Options
    from rocketstore.log.layout.paths import StoreLayout

logger = logging.getLogger(__name__)

__all__ = ["open_follower"]


def open_follower(
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
