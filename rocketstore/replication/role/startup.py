"""The role that a store takes at its open: to begin an epoch, follow, or take no puts, fenced.

Each open for writing of a store that was a master or a replica takes a role before anything else is
put: a plain open is that of a master, too, whose log the replicas have up to an epoch.
"""

from __future__ import annotations

from dataclasses import replace

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import FencedError, ReplicaStoreError
from rocketstore.log.recovery.losses import forget_delays
from rocketstore.replication.role.fence import fence_of
from rocketstore.replication.role.state import (
    ReplicationState,
    as_master,
    load_state,
    save_state,
)

__all__ = [
    "become_copy",
    "take_master_role",
    "take_plain_role",
    "take_replica_role",
]


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
    this returns. A master that is to follow another one stays a master on the disk until the new
    master has accepted it, or has it cut: a wrong address changes nothing.

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
        # Its epochs would not name the writer of what comes: it would be cut where they end.
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
