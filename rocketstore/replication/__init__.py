"""Replication: copies of one log on several machines.

A master sends the bytes of its log as they are; a replica appends them at the same offsets, makes them
durable and says how far it has come. RocketMQ's protocol (`protocol="rocketmq"`) knows no identity and
no checksum; that of rocketstore adds both.

Read in this order:
    settings: `Master` and `Replica`, what `rocketstore.open(replication=…)` takes.
    door: how that open makes a store a master or a copy. status: how far they are.
    protocol: a package, what is said between the two.
    state: `replication.json`, the role and the history of a store.
    roles: what an open store may do by its role, and the fence of a master.
    promotion, lease: who is the master, by hand or by a system outside.
    transport: the thread, the loop and the connections.
    quorum, sender, master: how the log of a master goes out, and how far n machines have it.
    compared_log: what both ends ask the log of their store.
    incoming: bytes as they come, to whole records.
    courses, replica: where a copy asks, what it compares, where it appends; the thread that follows.

Imports: the engine, the store and services. The log knows three things of replication: an append of
bytes as they are, how far each number of copies has come, and the puts that wait for it.
"""

from __future__ import annotations

from rocketstore.replication.lease import FileLease, Lease
from rocketstore.replication.promotion import Promotion, promote
from rocketstore.replication.settings import Master, Replica
from rocketstore.replication.status import Peer, ReplicationStatus

__all__ = [
    "FileLease",
    "Lease",
    "Master",
    "Peer",
    "Promotion",
    "Replica",
    "ReplicationStatus",
    "promote",
]
