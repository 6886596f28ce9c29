"""`ReplicationStatus`: what `store.replication` shows of a master or a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rocketstore.engine.writing_engine import WritingEngine

if TYPE_CHECKING:
    from rocketstore.engine.engine import Engine
    from rocketstore.replication.replica import ReplicaService
    from rocketstore.replication.sender import ConnectedReplica

__all__ = ["ReplicationStatus", "status_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatus:
    """How far the copies of this store are, or this one is a copy. A snapshot: ask again for newer
    numbers."""

    role: Literal["none", "master", "replica"] = "none"
    #: Where a master listens, or which master a copy follows: "host:port".
    address: str | None = None
    #: Of a master: the copies that are connected.
    replicas: tuple[ConnectedReplica, ...] = ()
    #: Of a copy: whether its master sends what it appends, and whether its disk has all that the
    #: master had when it last said so.
    connected: bool = False
    caught_up: bool = False
    #: Physical offsets up to which a copy has received the log, and has it on its disk.
    received: int = 0
    synced: int = 0
    #: Where the log of the master ended when it last said so; None before.
    master_end: int | None = None
    #: What the disk of a copy lacks of that, and since when it lacks something; None before.
    lag_bytes: int | None = None
    lag_ms: float | None = None
    #: Connections that there have been, so far; those that a master refused.
    connections: int = 0
    refused: int = 0
    #: Bytes of the log that were sent, or came; and of a copy, in the last seconds.
    bytes: int = 0
    bytes_per_s: float = 0.0
    #: What stopped replication for good; None while it goes on.
    error: BaseException | None = None
    #: Why the last connection ended that did not end well.
    last_error: Exception | None = None


def status_of(engine: Engine) -> ReplicationStatus:
    """Of an open store of any mode."""
    from rocketstore.replication.master import MasterService
    from rocketstore.replication.replica import ReplicaService

    if not isinstance(engine, WritingEngine):
        return ReplicationStatus()
    replica = engine.guests.made(ReplicaService)
    if replica is not None:
        return _of_replica(engine, replica)
    master = engine.guests.made(MasterService)
    if master is None:
        return ReplicationStatus()
    replicas = master.replicas
    return ReplicationStatus(
        role="master",
        address=master.address,
        replicas=replicas,
        connected=bool(replicas),
        connections=master.connections,
        refused=master.refused,
        bytes=master.bytes_sent,
        error=master.error,
        last_error=master.last_error,
    )


def _of_replica(engine: WritingEngine, service: ReplicaService) -> ReplicationStatus:
    positions = engine.positions
    synced = positions.flushed
    return ReplicationStatus(
        role="replica",
        address=service.settings.master,
        connected=service.connected,
        caught_up=service.caught_up,
        received=positions.wrote,
        synced=synced,
        master_end=service.master_end,
        lag_bytes=service.lag_bytes,
        lag_ms=service.lag_ms,
        connections=service.connections,
        bytes=service.bytes_received,
        bytes_per_s=service.bytes_per_s,
        error=service.stopped,
        last_error=service.last_error,
    )
