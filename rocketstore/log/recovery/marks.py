"""What a store says about its last writer, before a recovery begins."""

from __future__ import annotations

from dataclasses import dataclass

from rocketstore.log.commitlog.checkpoint import OwnCheckpoint
from rocketstore.log.recovery.progress import RecoveryProgress

__all__ = ["Marks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a store says about its last writer, read before anything is changed."""

    #: Our checkpoint, if it has a whole slot.
    own: OwnCheckpoint | None = None
    #: Its run had synced the log up to here when its process died, in this boot; 0: not known.
    synced: int = 0
    #: Runs of this boot had shown the log to readers up to here; 0: not known, or our checkpoint does
    #: not speak of this log.
    shown: int = 0
    #: `lock` said that rocketstore wrote last (D-01).
    ours: bool = False
    #: Another program did, by that mark, or by there being nothing of ours.
    theirs: bool = False
    #: There was no `abort`.
    clean: bool = True
    #: physic, logics and index time of RocketMQ's checkpoint.
    rocketmq_times: tuple[int, int, int] = (0, 0, 0)
    #: RocketMQ's messageIndexEnable and messageIndexSafe: the index time counts, too.
    index_safe: bool = False
    #: Largest physical end of all consume queues; None when there is no queue at all.
    derived_end: int | None = None
    #: End of the furthest record that a queue has, where our clean stop did not leave the queues so.
    pointed: int = 0
    #: Dispatch has to begin here at the latest, whatever the checkpoint says (D-18); None: no wish.
    dispatch_from: int | None = None
    #: The same for the index.
    index_from: int | None = None
    #: Whether there is an index now; without one nothing has to catch up, and nothing is known of
    #: it.
    indexed: bool = True
    #: Ranges that other programs wrote (store.json).
    foreign: tuple[tuple[int, int], ...] = ()
    #: What a recovery that was stopped half-way left; counts only with our checkpoint.
    progress: RecoveryProgress | None = None
    #: Where the log is to end although records follow: an order from outside; None without one.
    cut_at: int | None = None
