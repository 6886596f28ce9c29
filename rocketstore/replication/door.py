"""How `rocketstore.open(replication=…)` makes a store a master or a copy."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from typing import TYPE_CHECKING, Final

from rocketstore.engine.open import open_engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError
from rocketstore.replication.master import begin_master
from rocketstore.replication.replica import ReplicaService, first_contact
from rocketstore.replication.roles import take_master_role, take_replica_role
from rocketstore.replication.settings import Master, Replica
from rocketstore.replication.transport import split_address

if TYPE_CHECKING:
    from rocketstore.engine.open_options import Options
    from rocketstore.store import Mode, Store

__all__ = ["begin", "check_settings", "take_role"]

KEY_BYTES_MIN: Final = 16
#: An order of a master, and one of the next: more in a row is a master that does not know itself.
OPENS_MOST: Final = 3


def check_settings(settings: object, mode: Mode) -> None:
    """ConfigError for settings that contradict each other, or are no settings."""
    if not isinstance(settings, Master | Replica):
        raise ConfigError("replication", settings, "None, a Master or a Replica")
    if mode == "r":
        raise ConfigError("replication", settings, "of mode 'rw' or 'r+': a reader changes nothing")
    if settings.protocol not in ("rocketstore", "rocketmq"):
        raise ConfigError("protocol", settings.protocol, "'rocketstore' or 'rocketmq'")
    key: object = settings.key
    if key is not None and (not isinstance(key, bytes) or len(key) < KEY_BYTES_MIN):
        raise ConfigError("key", "…", f"None, or at least {KEY_BYTES_MIN} bytes")
    if settings.tls is not None and not isinstance(settings.tls, ssl.SSLContext):
        raise ConfigError("tls", settings.tls, "None or an ssl.SSLContext")
    safe = settings.key is not None or settings.tls is not None
    if settings.protocol == "rocketmq" and safe:
        raise ConfigError("protocol", "rocketmq", "'rocketstore': RocketMQ's knows no key, no TLS")
    for name in ("heartbeat_every", "silence_limit", "replica_timeout", "reconnect_every"):
        _check_time(name, getattr(settings, name, datetime.timedelta(seconds=1)))
    if isinstance(settings, Master):
        host, _ = split_address("listen", settings.listen)
        if not safe and not _is_loopback(host):
            raise ConfigError("listen", settings.listen, "an address of loopback, or key= or tls=")
    else:
        split_address("master", settings.master)
        _check_begin(settings)


def _check_begin(settings: Replica) -> None:
    begin: object = settings.begin
    if begin in ("oldest", "last file"):
        return
    if settings.protocol != "rocketmq":
        raise ConfigError("begin", begin, "'oldest' or 'last file'")
    if isinstance(begin, bool) or not isinstance(begin, int) or begin < 0:
        raise ConfigError("begin", begin, "'oldest', 'last file' or a physical offset, 0 or more")


def _check_time(name: str, value: object) -> None:
    if not isinstance(value, datetime.timedelta) or value <= datetime.timedelta(0):
        raise ConfigError(name, value, "a datetime.timedelta above 0")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def take_role(engine: WritingEngine, settings: Master | Replica, options: Options) -> WritingEngine:
    """The engine in its role; nothing was put yet. A copy talks to its master first: where its log
    has to begin or to end elsewhere, it is opened again."""
    if isinstance(settings, Master):
        take_master_role(engine)
        return engine
    for _ in range(OPENS_MOST):
        try:
            take_replica_role(engine, compares=settings.protocol == "rocketmq")
            if settings.protocol == "rocketmq" or not first_contact(engine, settings):
                engine.copy_of = settings.master
                return engine
        except BaseException:
            engine.close()
            raise
        path = engine.path
        engine.close()
        opened = open_engine(path, "r+", options)
        assert isinstance(opened, WritingEngine)
        engine = opened
    engine.copy_of = settings.master  # the service says what is wrong
    return engine


def begin(store: Store, settings: Master | Replica) -> None:
    """Starts the thread that serves copies, or follows the master."""
    if isinstance(settings, Master):
        begin_master(store, settings)
        return
    engine = store._writable("replication")
    engine.guests.get(ReplicaService, lambda: ReplicaService(engine, settings)).start()
