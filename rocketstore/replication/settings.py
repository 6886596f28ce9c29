"""`Master` and `Replica`: what one store does for, or takes from, others."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from rocketstore.config.units import duration_within
from rocketstore.errors import ConfigError
from rocketstore.replication.protocol.compression import CODECS, Codec, CodecName, is_here
from rocketstore.replication.role.lease import Lease
from rocketstore.replication.transport.addresses import split_address
from rocketstore.values.arguments import YEAR_S
from rocketstore.values.timestamps import Duration

__all__ = ["Master", "Protocol", "Replica"]

#: "rocketstore": with identity, checksums and both acknowledgements. "rocketmq": the HA protocol of
#: RocketMQ 3.0 to 5.5, which knows neither.
Protocol = Literal["rocketstore", "rocketmq"]
Begin = Literal["oldest", "last file"]
#: Shortest key, bytes.
KEY_BYTES_MIN: Final = 16
TIME_MIN: Final = datetime.timedelta(milliseconds=1)
TIME_MOST: Final = datetime.timedelta(seconds=YEAR_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Master:
    """The store sends its log to replicas, for `rocketstore.open(replication=…)`.

    Times are seconds or a `datetime.timedelta`, from 1 ms to a year.

    Args:
        listen: "address:port" to accept replicas at, IPv6 in brackets: "[::1]:10912". Port 0: a
            free one, which `store.replication.address` says. Beyond loopback only with `key`, or
            with a `tls` that wants certificates.
        protocol: What replicas have to speak.
        key: A secret of at least 16 bytes that both sides know: each proves that it does. With
            protocol "rocketstore" only.
        tls: A context of a server. Its connections are encrypted; with `CERT_REQUIRED` replicas
            need certificates. With protocol "rocketstore" only.
        max_replicas: Replicas at a time, 1 or more; what comes then is refused. Connections that
            have not proved the key and asked for the log take no place of a replica.
        heartbeat_every: A connection with nothing to send sends an empty frame this often. It is
            to be less than the `silence_limit` of each replica, which disconnects else.
        silence_limit: A replica that says nothing for so long is disconnected.
        replica_timeout: How long a put with `durability="replicas(n)"` waits for replicas, once it
            is on the disk of this machine. Then it raises `ReplicaTimeoutError`.
        max_lag_bytes: A replica that lacks more bytes than these, 1 or more, does not count as one
            that a put can wait for.
        compression: Whether a replica that asks for it gets the log compressed, which takes a part
            of a processor for each of them.
        max_bytes_per_s: Limit of what one replica is sent, bytes a second. None: no limit.
        lease: What says until when this process may be the master; no put is taken after that.
    """

    listen: str = "127.0.0.1:10912"
    protocol: Protocol = "rocketstore"
    key: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    max_replicas: int = 16
    heartbeat_every: Duration = datetime.timedelta(seconds=5)
    silence_limit: Duration = datetime.timedelta(seconds=20)
    replica_timeout: Duration = datetime.timedelta(seconds=3)
    max_lag_bytes: int = 256 << 20
    compression: bool = True
    max_bytes_per_s: int | None = None
    lease: Lease | None = None

    def __post_init__(self) -> None:
        """Raises ConfigError: a value that there is not, or that contradicts another one."""
        host, _ = _address("listen", self.listen)
        _check_connection(self.protocol, self.key, self.tls, ssl.PROTOCOL_TLS_CLIENT)
        if not self.proves and not _is_loopback(host):
            how = "key=, or tls= with verify_mode CERT_REQUIRED"
            if self.protocol != "rocketstore":
                how = "protocol='rocketstore'"
            raise ConfigError(
                "listen",
                self.listen,
                f"an address of loopback, as 127.0.0.1:10912; others need {how}",
            )
        for name in ("heartbeat_every", "silence_limit", "replica_timeout"):
            duration_within(name, getattr(self, name), TIME_MIN, TIME_MOST)
        for name in ("max_replicas", "max_lag_bytes"):
            _check_number(name, getattr(self, name))
        if self.max_bytes_per_s is not None:
            _check_number("max_bytes_per_s", self.max_bytes_per_s)
        if not isinstance(self.compression, bool):
            raise ConfigError("compression", self.compression, "must be True or False")
        if self.lease is not None and not callable(getattr(self.lease, "deadline", None)):
            raise ConfigError("lease", self.lease, "None or a Lease, with a method deadline()")

    @property
    def proves(self) -> bool:
        """Whether a replica has to prove its identity."""
        return self.key is not None or _asks_for_certificates(self.tls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """The store is a copy of another one, for `rocketstore.open(replication=…)`: it takes no puts.

    Times are seconds or a `datetime.timedelta`, from 1 ms to a year.

    Args:
        master: "host:port" of the master; IPv6 in brackets: "[::1]:10912".
        protocol: What the master speaks: "rocketmq" for a broker of RocketMQ.
        key, tls: As of `Master`; `tls` is a context of a client.
        begin: Where an empty copy begins: with the "oldest" message of the master, or with its
            "last file" of the log, as RocketMQ's slaves do. With protocol "rocketmq" also the
            physical offset at which a file of the master's log begins.
        compression: "zlib", or "zstd", which needs zstandard (`rocketstore[compression]`) at both
            ends: asks the master to compress the log on its way. A master that does not sends it
            as it is. With protocol "rocketstore" only.
        heartbeat_every: The replica says how far it is at least this often. It is to be less than
            the `silence_limit` of the master, which disconnects else.
        silence_limit: A master that says nothing for so long is disconnected, and asked again.
        reconnect_every: Between two attempts to connect.
        broker: "host:port" at which the broker of that master takes requests (its `listenPort`, not
            the port of its HA service). Topics, subscription groups, offsets of groups and of delay
            levels are asked there, and kept in the files of the copy. None: nobody is asked. With
            protocol "rocketmq" only.
        broker_every: Between two times that the broker is asked.
    """

    master: str
    protocol: Protocol = "rocketstore"
    key: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    begin: Begin | int = "oldest"
    compression: CodecName | None = None
    heartbeat_every: Duration = datetime.timedelta(seconds=5)
    silence_limit: Duration = datetime.timedelta(seconds=20)
    reconnect_every: Duration = datetime.timedelta(seconds=1)
    broker: str | None = None
    broker_every: Duration = datetime.timedelta(seconds=10)

    def __post_init__(self) -> None:
        """Raises ConfigError: a value that there is not, or that contradicts another one."""
        _, port = _address("master", self.master)
        if not port:
            raise ConfigError("master", self.master, "the port of a master: 1 … 65535")
        _check_connection(self.protocol, self.key, self.tls, ssl.PROTOCOL_TLS_SERVER)
        by_offset = type(self.begin) is int and 0 <= self.begin < 2**63
        if self.begin not in get_args(Begin) and not (by_offset and self.protocol == "rocketmq"):
            raise ConfigError(
                "begin",
                self.begin,
                "'oldest' or 'last file'; with protocol 'rocketmq' also a physical offset",
            )
        _check_compression(self.compression, self.protocol)
        if self.broker is not None:
            _check_broker(self.broker, self.protocol)
        for name in ("heartbeat_every", "silence_limit", "reconnect_every", "broker_every"):
            duration_within(name, getattr(self, name), TIME_MIN, TIME_MOST)


def _address(field: str, given: object) -> tuple[str, int]:
    if not isinstance(given, str):
        raise ConfigError(field, given, "must be a text, as 'store-1:10912'")
    return split_address(field, given)


def _check_broker(broker: str, protocol: Protocol) -> None:
    _, port = _address("broker", broker)
    if not port:
        raise ConfigError("broker", broker, "the port of a broker: 1 … 65535")
    if protocol != "rocketmq":
        raise ConfigError("broker", broker, "None, or protocol='rocketmq': others have no broker")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _asks_for_certificates(tls: object) -> bool:
    return isinstance(tls, ssl.SSLContext) and tls.verify_mode is ssl.CERT_REQUIRED


def _check_connection(
    protocol: object, key: object, tls: object, other_side: ssl._SSLMethod
) -> None:
    """`other_side`: what a context of this end must not be made for."""
    if protocol not in get_args(Protocol):
        raise ConfigError("protocol", protocol, "'rocketstore' or 'rocketmq'")
    if key is not None and (not isinstance(key, bytes) or len(key) < KEY_BYTES_MIN):
        # The value is a secret, or nearly one.
        given = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise ConfigError("key", given, f"None, or {KEY_BYTES_MIN} bytes or more, of type bytes")
    if tls is not None:
        side = "server" if other_side is ssl.PROTOCOL_TLS_CLIENT else "client"
        if not isinstance(tls, ssl.SSLContext) or tls.protocol is other_side:
            raise ConfigError("tls", tls, f"None, or an ssl.SSLContext of a {side}")
    if protocol == "rocketmq" and not (key is None and tls is None):
        name = "key" if tls is None else "tls"
        raise ConfigError(name, "…", "None with protocol 'rocketmq', which knows no such thing")


def _check_compression(given: object, protocol: object) -> None:
    if given is not None and (not isinstance(given, str) or given not in CODECS):
        raise ConfigError("compression", given, "None, 'zlib' or 'zstd'")
    if given is not None and protocol == "rocketmq":
        raise ConfigError("compression", given, "None with protocol 'rocketmq', which knows none")
    if given == "zstd" and not is_here(Codec.ZSTD):
        raise ConfigError(
            "compression", given, "'zlib', or zstandard: pip install 'rocketstore[compression]'"
        )


def _check_number(name: str, given: object) -> None:
    if type(given) is not int or not 1 <= given < 2**63:
        raise ConfigError(name, given, "a whole number, 1 or more")
