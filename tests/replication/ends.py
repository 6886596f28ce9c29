"""Both ends of rocketstore's protocol over logs in memory, without a socket."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from rocketstore.replication.protocol.epochs import with_run
from rocketstore.replication.protocol.link import Asked, Buffer, CutTo, Data, Event
from rocketstore.replication.protocol.session import (
    Bounds,
    Identity,
    LogTail,
    MasterSession,
    ReplicaSession,
)

TAIL = 64
NOBODY = Identity(b"", ())


@dataclass
class Log:
    """Bytes from `begin` on, and whose they are."""

    data: bytearray = field(default_factory=bytearray)
    begin: int = 0
    identity: Identity = NOBODY
    replica_id: bytes = b"r" * 16
    segment_bytes: int = 100

    @property
    def end(self) -> int:
        return self.begin + len(self.data)

    def bounds(self) -> Bounds:
        last_file = max(self.begin, self.end // 100 * 100)
        return Bounds(self.begin, last_file, self.end, self.segment_bytes)

    def digest(self, start: int, end: int) -> bytes | None:
        if not self.begin <= start <= end <= self.end:
            return None
        return hashlib.sha256(self.data[start - self.begin : end - self.begin]).digest()

    def log_tail(self) -> LogTail:
        tail = max(self.begin, self.end - TAIL)
        digest = self.digest(tail, self.end) or b""
        return LogTail(self.begin, self.end, tail, digest, self.segment_bytes)

    def keep(self, identity: Identity) -> None:
        self.identity = identity


def master_of(data: bytes, begin: int = 0) -> Log:
    log = Log(bytearray(data), begin)
    log.identity = Identity(b"m" * 16, with_run((), begin=begin, end=log.end))
    return log


def copy_of(master: Log, end: int) -> Log:
    """What a replica has that followed up to `end`."""
    return Log(master.data[: end - master.begin], master.begin, master.identity)


def joined(buffers: Any) -> bytes:
    return b"".join(bytes(one) for one in buffers)


class Wire:
    """Carries what both ends say until they have nothing more to say. `said`: all bytes of either."""

    def __init__(self, master: MasterSession, replica: ReplicaSession) -> None:
        self.master, self.replica = master, replica
        self.said: dict[str, bytes] = {"master": b"", "replica": b""}
        self.events: list[Event] = []
        self.asked = False

    def greet(self) -> None:
        self.to_replica(self.master.start())
        self.to_master(self.replica.start())

    def to_master(self, buffers: Any) -> None:
        said = joined(buffers)
        self.said["replica"] += said
        if said:
            try:
                self.events += self.master.receive(memoryview(said))
            finally:
                self.to_replica(self.master.replies())

    def to_replica(self, buffers: Any) -> None:
        said = joined(buffers)
        self.said["master"] += said
        if said:
            self.events += self.replica.receive(memoryview(said))
            self.to_master(self.replica.replies())
            if self.replica.ready and not self.asked:
                self.asked = True
                self.to_master(self.replica.ask(0))


def follow(master: Log, replica: Log, step: int = 30, **options: Any) -> list[Event]:
    """Has the replica follow to the end of the master; the events of both."""
    wire = Wire(MasterSession(master), ReplicaSession(replica, **options))
    wire.greet()
    at = next((one.offset for one in wire.events if isinstance(one, Asked)), None)
    while at is not None and at < master.end:
        data = memoryview(bytes(master.data))[at - master.begin :][:step]
        seen = len(wire.events)
        sent: list[Buffer] = list(wire.master.data(at, data))
        wire.to_replica(sent)
        for one in wire.events[seen:]:
            assert isinstance(one, Data)
            if not replica.data:
                replica.begin = one.offset
            replica.data += one.data
        at += len(data)
        wire.to_master(wire.replica.acknowledge(replica.end, replica.end))
    for one in wire.events:
        if isinstance(one, CutTo):
            del replica.data[one.offset - replica.begin :]
    return wire.events
