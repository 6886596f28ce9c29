"""`Master` and `Replica`: what one store does for, or takes from, others."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rocketstore.replication.lease import Lease

__all__ = ["Master", "Protocol", "Replica"]

#: "rocketstore": with identity, checksums and both acknowledgements. "rocketmq": the HA protocol of
#: RocketMQ 3.0 to 5.5, which knows neither.
Protocol = Literal["rocketstore", "rocketmq"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Master:
    """The store sends its log to replicas, for `rocketstore.open(replication=…)`.

    Args:
        listen: "address:port" to accept replicas at; port 0: a free one. Beyond loopback only with
            `key` or `tls`.
        protocol: What replicas have to speak.
        key: A secret of at least 16 bytes that both sides know: each proves that it does. With
            protocol "rocketstore" only.
        tls: A context of a server. Its connections are encrypted; with `CERT_REQUIRED` replicas
            need certificates. With protocol "rocketstore" only.
        max_replicas: Connections at a time; more are refused.
        heartbeat_every: A connection with nothing to send sends an empty frame this often.
        silence_limit: A replica that says nothing for so long is disconnected.
        replica_timeout: How long a put with `durability="replicas(n)"` waits for replicas, once it
            is on the disk of this machine.
        max_lag_bytes: A replica further behind does not count as one that a put can wait for.
        max_bytes_per_s: Limit of what one replica is sent, bytes a second. None: no limit.
        lease: What says until when this process may be the master; no put is taken after that.
    """

    listen: str = "127.0.0.1:10912"
    protocol: Protocol = "rocketstore"
    key: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    max_replicas: int = 16
    heartbeat_every: datetime.timedelta = datetime.timedelta(seconds=5)
    silence_limit: datetime.timedelta = datetime.timedelta(seconds=20)
    replica_timeout: datetime.timedelta = datetime.timedelta(seconds=3)
    max_lag_bytes: int = 256 << 20
    max_bytes_per_s: int | None = None
    lease: Lease | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The store is a copy of another one, for `rocketstore.open(replication=…)`: it takes no puts.

    Args:
        master: "host:port" of the master.
        protocol: What the master speaks: "rocketmq" for a broker of RocketMQ.
        key, tls: As of `Master`; `tls` is a context of a client.
        begin: Where an empty copy begins: with the "oldest" message of the master, or with its
            "last file" of the log, as RocketMQ's slaves do. With protocol "rocketmq" also a number:
            the physical offset at which a file of the master's log begins. That protocol does not
            say where the oldest one does, so it is asked for at 0.
        heartbeat_every: The replica says how far it is at least this often.
        silence_limit: A master that says nothing for so long is disconnected, and asked again.
        reconnect_every: Between two attempts to connect.
    """

    master: str
    protocol: Protocol = "rocketstore"
    key: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    begin: Literal["oldest", "last file"] | int = "oldest"
    heartbeat_every: datetime.timedelta = datetime.timedelta(seconds=5)
    silence_limit: datetime.timedelta = datetime.timedelta(seconds=20)
    reconnect_every: datetime.timedelta = datetime.timedelta(seconds=1)
