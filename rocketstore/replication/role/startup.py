"""The role that a store takes at its open: to begin an epoch, follow, or take no puts, fenced.

Each open for writing of a store that was a master or a replica takes a role before anything else is
put: a plain open is that of a master, too, whose log the replicas have up to an epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import FencedError, ReplicaStoreError
from rocketstore.log.commitlog.running_flags import Reason
from rocketstore.log.recovery.losses import forget_delays
from rocketstore.replication.role.state import (
    ReplicationState,
    as_master,
    fenced,
    load_state,
    save_state,
)

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = [
    "Fence",
    "become_copy",
    "fence_of",
    "take_master_role",
    "take_plain_role",
    "take_replica_role",
]

logger = logging.getLogger(__name__)


class Fence:
    """Why a master takes no puts: another was promoted, or its lease is not held. A guest of the
    engine; any thread may call it."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._flags = engine.commit_log.flags
        self._lock = SignalSafeLock("the roles", reentrant=False)
        self._by_term = self._by_lease = ""
        #: Called with the error when puts are refused from now on: it ends puts that wait.
        self.on_fence: Callable[[FencedError], None] = _nobody

    def stop(self) -> None:
        """It has no thread."""

    @property
    def error(self) -> FencedError | None:
        """What a put raises; None while puts are taken."""
        why = self._by_term or self._by_lease
        return FencedError(why) if why else None

    def hear(self, term: int) -> None:
        """A peer of this history knows a later term: another store was promoted. That stays, also
        over restarts, until this store is promoted by hand."""
        state = load_state(self._engine.layout)
        if state is None or term <= max(state.term, state.fenced_by or 0):
            return
        self._set_term(term)
        logger.error("%s: %s", self._engine.path, self._by_term)
        try:
            save_state(self._engine.layout, fenced(state, term))
        except OSError as error:  # the peer comes again
            logger.error("%s: that is not kept over a restart: %s", self._engine.path, error)
            raise

    def lease(self, why: str) -> None:
        """The lease is not held, for the reason `why`; "": it is held."""
        with self._lock():
            was, self._by_lease = self._by_lease, why
            if not why and not self._by_term:
                self._flags.clear(Reason.FENCED)
        if why and not was and not self._by_term:
            self._refuse(why)

    def restore(self, state: ReplicationState) -> None:
        """As an earlier run of this store has heard."""
        if state.fenced_by is not None:
            self._set_term(state.fenced_by)

    def _set_term(self, term: int) -> None:
        self._by_term = (
            f"another store was promoted in term {term}: follow it with this one, or promote this "
            "one again ('rocketstore promote'), which fences the other"
        )
        self._refuse(self._by_term)
        self.on_fence(
            FencedError(f"whether replicas have the message is not known: {self._by_term}")
        )

    def _refuse(self, why: str) -> None:
        with self._lock():
            self._flags.set(Reason.FENCED, why, newest=True)


def _nobody(error: FencedError) -> None:
    """No put waits for replicas."""


def fence_of(engine: WritingEngine) -> Fence:
    """The one fence of an open store."""
    return engine.guests.get(Fence, lambda: Fence(engine))


def take_master_role(engine: WritingEngine) -> ReplicationState:
    """Begins an epoch of a store that was just opened as a master; nothing was put yet. Durable
    when this returns.

    Raises:
        ReplicaStoreError: the store is a copy.
        FencedError: another store was promoted in its place.
        ReplicationError: its role cannot be read.
    """
    state = load_state(engine.layout)
    _check_master(engine, state)
    if state is not None and state.fenced_by is not None:
        raise FencedError(
            f"{engine.path}: another store was promoted in term {state.fenced_by}: open this one "
            "with replication=Replica(master=…), or promote it again ('rocketstore promote')"
        )
    return _begin_epoch(engine, state)


def take_plain_role(engine: WritingEngine) -> None:
    """The same for an open without `replication=`, of a store whose role is known. A fenced one
    opens, and takes no puts."""
    state = load_state(engine.layout)
    if state is None:
        return
    _check_master(engine, state)
    if state.fenced_by is not None:
        fence_of(engine).restore(state)
    else:
        _begin_epoch(engine, state)


def take_replica_role(engine: WritingEngine, *, compares: bool = False) -> ReplicationState:
    """Makes a store that was just opened a copy: an empty one, or one that is a copy. Durable when
    this returns. A master that is to follow another one stays a master on the disk until that one
    has accepted it, or has it cut: a wrong address changes nothing.

    `compares`: the copy compares its last bytes with those of the master, and has no history.

    Raises:
        ReplicaStoreError: it has messages of its own and no history that a master could compare, or
            a history, and `compares`.
        ReplicationError: its role cannot be read.
    """
    state = load_state(engine.layout)
    if state is None:
        if engine.recovery.end > engine.recovery.begin and not compares:
            raise ReplicaStoreError(
                f"{engine.path} has messages that no master of it is known to have: give a copy "
                "an empty directory of its own"
            )
        become_copy(engine)
        state = ReplicationState(role="replica")
    elif compares and state.epochs:
        # Its epochs would not tell who wrote what comes: it would be cut where they end.
        raise ReplicaStoreError(
            f"{engine.path} has a history, which protocol='rocketmq' does not carry on: follow by "
            "protocol='rocketstore', or give the copy an empty directory of its own"
        )
    if state.role == "master":
        return replace(state, role="replica")
    save_state(engine.layout, state)
    return state


def become_copy(engine: WritingEngine) -> None:
    """Forgets how far the delivery of delayed messages is: that holds for a log that this store
    wrote itself. Called before the store is a copy on the disk.

    Raises:
        OSError: it is not forgotten.
    """
    forget_delays(engine.layout)


def _check_master(engine: WritingEngine, state: ReplicationState | None) -> None:
    if state is not None and state.role == "replica":
        raise ReplicaStoreError(
            f"{engine.path} is a copy of another store: open it with replication=Replica(…), as "
            "'rocketstore follow' does, or with mode='r', or make it the master with "
            "'rocketstore promote'"
        )


def _begin_epoch(engine: WritingEngine, state: ReplicationState | None) -> ReplicationState:
    report = engine.recovery
    made = as_master(state, begin=report.begin, end=report.end)
    save_state(engine.layout, made)
    return made
