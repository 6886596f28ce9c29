"""`ReplicationStatus`: what `Store.replication` gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.replication.broker.service import BrokerService
from rocketstore.replication.broker.side_files import DELAY_FILE
from rocketstore.replication.master.sender import ConnectedReplica
from rocketstore.replication.master.service import MasterService
from rocketstore.replication.protocol.compression import CodecName
from rocketstore.replication.replica.service import MustOpenAgainError, ReplicaService
from rocketstore.replication.role.state import ReplicationState, load_state
from rocketstore.replication.settings import Protocol
from rocketstore.values.public import public

__all__ = ["BrokerFiles", "Peer", "ReplicationStatus", "status_of"]

COMPARES_NOTHING: Final = "RocketMQ's protocol compares no bytes: its log may be another one"
NO_RECORD: Final = (
    "it asked for the log from {} on, where no record begins: its log is another one, or ends "
    "within a record; it does not count for replicas(n) before it is restarted"
)


@public
@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: of a master each of its replicas, of a replica its master.

    `received` and `synced` are physical offsets, in both cases of the replica: it has the log below
    the one, and on its disk below the other. What its disk lacks is `lag_bytes`, and `lag_s` how
    long it has lacked some of it, seconds; 0 while it lacks nothing.

    A master knows what a replica lacks. A replica knows what has come: where its master's log ended
    when the last word that came was sent. Bytes that are under way, on a slow link, are no lag to it.
    Once it has heard nothing for 1.5 times its `heartbeat_every`, `lag_s` is how long that is.
    """

    address: str
    received: int
    synced: int
    lag_bytes: int
    lag_s: float
    #: Bytes of the log that came or went lately, as they are in it.
    bytes_per_s: int
    #: How the log is compressed on its way; None: it is not.
    compression: CodecName | None = None
    #: Of a master: whether `durability="replicas(n)"` counts this replica.
    counts: bool = False
    #: Of a master: what nothing proves of the log of this replica, in a sentence, and why it does not
    #: count, if so. Empty: its log is compared.
    unproved: str = ""


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFiles:
    """What a copy has got from the broker of its master (`Replica(broker=…)`).

    The numbers are entries of the files in `config`; None: the broker has not given one since the
    store was opened.
    """

    address: str
    #: When the broker was last asked, milliseconds since 1970. None: not yet.
    asked_ms: int | None
    #: Topics in `topics.json`.
    topics: int | None
    #: Consumer groups in `subscriptionGroup.json`.
    groups: int | None
    #: Queues of groups in `consumerOffset.json`.
    group_offsets: int | None
    #: Delay levels in `delayOffset.json`. The copy writes that file once its log has all that the
    #: broker had delivered.
    delay_levels: int | None
    #: What went wrong when the broker was last asked. None: nothing did.
    last_error: BaseException | None


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatus:
    """What a store is in replication at one moment, and how far its peers are.

    A store that is open for reading knows its role, its term and `fenced_by`; its writer has the
    rest.
    """

    #: None: the store never was a master or a copy.
    role: Literal["master", "replica"] | None
    #: The number of the last promotion that the log knows; 0 of a copy of RocketMQ.
    term: int
    #: The term in which another store took the place of this master. None: no store did.
    fenced_by: int | None
    #: None: this open store neither serves copies nor follows a master.
    protocol: Protocol | None
    #: Where a master listens, with the port that it got; of a replica the address of its master.
    address: str
    #: The peers that are connected.
    peers: tuple[Peer, ...]
    #: How many connections there have been since the store was opened: more than there are peers
    #: where some ended and were made again.
    connections: int
    #: Bytes of the log that they carried.
    bytes: int
    #: What ended replication for good; the store goes on. None: nothing did.
    error: BaseException | None
    #: Why the last connection that went wrong ended. The next attempt may succeed.
    last_error: BaseException | None
    #: Of a replica: all that its master had is on this disk, by the last word that came, which is
    #: younger than 1.5 times its `heartbeat_every`. What is under way to it, it cannot know.
    caught_up: bool = False
    #: Of a replica: why it stopped, or its store takes nothing, as the disk keeps it from then until it
    #: goes on; also for a process that opens it for reading. Empty: it goes on, or never stopped.
    stopped: str = ""
    #: Of a replica that stopped (`error`): the next open cuts off what is not of the master's
    #: history, and goes on.
    must_open_again: bool = False
    #: What a replica with `Replica(broker=…)` has got from the broker. None: it has no such setting.
    broker: BrokerFiles | None = None


def status_of(engine: Engine) -> ReplicationStatus:
    """Raises ReplicationError: the role of the store cannot be read."""
    state = load_state(engine.layout)
    if isinstance(engine, WritingEngine):
        master = engine.guests.made(MasterService)
        if master is not None:
            return _of_master(master, state)
        replica = engine.guests.made(ReplicaService)
        if replica is not None:
            return _of_replica(replica, engine, state)
    return ReplicationStatus(
        role=None if state is None else state.role,
        term=0 if state is None else state.term,
        fenced_by=None if state is None else state.fenced_by,
        protocol=None,
        address="",
        peers=(),
        connections=0,
        bytes=0,
        error=None,
        last_error=None,
        stopped="" if state is None else state.stopped,
    )


def _of_master(service: MasterService, state: ReplicationState | None) -> ReplicationStatus:
    return ReplicationStatus(
        role="master",
        term=0 if state is None else state.term,
        fenced_by=None if state is None else state.fenced_by,
        protocol=service.settings.protocol,
        address=service.address,
        # One that has not said yet what it has may be anybody, and no put can count it.
        peers=tuple(
            _peer(one, service.settings.protocol != "rocketmq")
            for one in service.replicas
            if one.counts or not one.fits
        ),
        connections=service.connections,
        bytes=service.bytes_sent,
        error=service.error,
        last_error=service.last_error,
    )


def _peer(one: ConnectedReplica, compares: bool) -> Peer:
    return Peer(
        address=one.address,
        received=one.received,
        synced=one.synced,
        lag_bytes=one.lag_bytes,
        lag_s=one.lag_ms / 1000,
        bytes_per_s=one.bytes_per_s,
        compression=one.compression,
        counts=one.counts,
        unproved="" if compares else COMPARES_NOTHING if one.fits else NO_RECORD.format(one.asked),
    )


def _of_replica(
    service: ReplicaService, engine: WritingEngine, state: ReplicationState | None
) -> ReplicationStatus:
    caught_up = service.caught_up  # before how far it is: that may grow meanwhile
    return ReplicationStatus(
        role="replica",
        term=0 if state is None else state.term,
        fenced_by=None if state is None else state.fenced_by,
        protocol=service.settings.protocol,
        address=service.settings.master,
        peers=(_master_of(service, engine),) if service.connected else (),
        connections=service.connections,
        bytes=service.bytes_received,
        error=service.stopped,
        last_error=service.last_error,
        caught_up=caught_up,
        stopped=service.kept_stop,
        must_open_again=isinstance(service.error, MustOpenAgainError),
        broker=_broker_files(engine.guests.made(BrokerService)),
    )


def _broker_files(service: BrokerService | None) -> BrokerFiles | None:
    if service is None:
        return None
    entries = service.entries
    return BrokerFiles(
        address=service.address,
        asked_ms=service.asked_ms,
        topics=entries.get("topics.json"),
        groups=entries.get("subscriptionGroup.json"),
        group_offsets=entries.get("consumerOffset.json"),
        delay_levels=entries.get(DELAY_FILE),
        last_error=service.stopped or service.last_error,
    )


def _master_of(service: ReplicaService, engine: WritingEngine) -> Peer:
    end, synced = service.master_end or 0, engine.positions.flushed
    lag = max(0, end - synced)
    lag_s = (service.lag_ms or 0.0) / 1000
    return Peer(
        address=service.settings.master,
        received=engine.positions.wrote,
        synced=synced,
        lag_bytes=lag,
        lag_s=lag_s if lag or not service.caught_up else 0.0,
        bytes_per_s=int(service.bytes_per_s),
        compression=service.compression,
    )
