"""Replication: copies of one log on several machines.

A master sends the bytes of its log as they are; a replica appends them at the same offsets, makes them
durable and says how far it has come. RocketMQ's protocol (`protocol="rocketmq"`) knows no identity and
no checksum; that of rocketstore adds both.

Read in this order; each part imports only parts before it:
    protocol: a package, the frames between master and copy.
    transport: a package, the thread, the loop and the connections, and what peers may cost.
    role: a package, which store is the master, and what each may do.
    settings: `Master` and `Replica`, what `rocketstore.open(replication=…)` takes.
    master: a package, how the log of a master goes out, and how far n machines have it.
    replica: a package, how the log of a master comes to a copy.
    broker: a package, state of a RocketMQ broker that is not in its log.
    open: how an open makes a store a master or a copy. status: how far master and copies are.

Imports: services, the engine and lower floors. The log knows three things of replication: an append
of bytes as they are, how far each number of copies has come, and the puts that wait for it.
"""

from __future__ import annotations

from rocketstore.replication.role.lease import FileLease, Lease
from rocketstore.replication.role.promotion import Promotion, promote
from rocketstore.replication.role.state import epochs_before, shared_until
from rocketstore.replication.settings import Master, Replica
from rocketstore.replication.status import BrokerFiles, Peer, ReplicationStatus

__all__ = [
    "BrokerFiles",
    "FileLease",
    "Lease",
    "Master",
    "Peer",
    "Promotion",
    "Replica",
    "ReplicationStatus",
    "epochs_before",
    "promote",
    "shared_until",
]
