"""`ReplicationStatus`: what `store.replication` shows of a master or a copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.replication.master import MasterService
from rocketstore.replication.replica import ReplicaService

if TYPE_CHECKING:
    from rocketstore.engine.engine import Engine
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
    #: Of a copy: whether its master sends what it appends.
    connected: bool = False
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
    if not isinstance(engine, WritingEngine):
        return ReplicationStatus()
    replica = engine.guests.made(ReplicaService)
    if replica is not None:
        return _of_replica(engine, replica)
    master = engine.guests.made(MasterService)
    return ReplicationStatus() if master is None else _of_master(master)


def _of_replica(engine: WritingEngine, service: ReplicaService) -> ReplicationStatus:
    positions = engine.positions
    synced = positions.flushed
    return ReplicationStatus(
        role="replica",
        address=service.settings.master,
        connected=service.connected,
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


def _of_master(service: MasterService) -> ReplicationStatus:
    return ReplicationStatus(
        role="master",
        address=service.address,
        replicas=service.replicas,
        connected=bool(service.replicas),
        connections=service.connections,
        refused=service.refused,
        bytes=service.bytes_sent,
        error=service.error,
        last_error=service.last_error,
    )
