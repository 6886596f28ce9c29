"""How `rocketstore.open(replication=…)` makes a store a master or a copy."""

from __future__ import annotations

from typing import Final

from rocketstore.engine.open import open_engine
from rocketstore.engine.open_options import Options
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError
from rocketstore.replication.broker.service import BrokerService
from rocketstore.replication.master.service import begin_master
from rocketstore.replication.replica.service import ReplicaService, first_contact
from rocketstore.replication.role.lease import keep_lease
from rocketstore.replication.role.startup import take_master_role, take_replica_role
from rocketstore.replication.settings import Master, Replica

__all__ = ["asks_for_copy", "begin", "take_role"]

#: An order of a master, and one of the next: more in a row is a master that does not know itself.
OPENS_MOST: Final = 3


def asks_for_copy(settings: object, mode: str) -> bool:
    """Whether the store is to be a copy. ConfigError for what is no settings, and for a mode that
    changes nothing."""
    if not isinstance(settings, Master | Replica):
        raise ConfigError("replication", settings, "None, a Master or a Replica")
    if mode == "r":
        raise ConfigError("replication", settings, "None with mode='r': a reader changes nothing")
    return isinstance(settings, Replica)


def take_role(engine: WritingEngine, settings: Master | Replica, options: Options) -> WritingEngine:
    """The engine in its role; nothing was put yet. A copy talks to its master first: where its log
    has to begin or to end elsewhere, it is opened again."""
    if isinstance(settings, Master):
        take_master_role(engine)
        if settings.lease is not None:  # before services of the store put something
            keep_lease(engine, settings.lease)
        return engine
    for _ in range(OPENS_MOST):
        try:
            take_replica_role(engine, compares=settings.protocol == "rocketmq")
            if settings.protocol == "rocketmq" or not first_contact(engine, settings):
                return _copy(engine, settings)
        except BaseException:
            engine.close()
            raise
        path = engine.path
        engine.close()
        opened = open_engine(path, "r+", options)
        assert isinstance(opened, WritingEngine)
        engine = opened
    return _copy(engine, settings)  # the service says what is wrong


def _copy(engine: WritingEngine, settings: Replica) -> WritingEngine:
    engine.copy_of = engine.offsets.master = settings.master
    return engine


def begin(engine: WritingEngine, settings: Master | Replica) -> None:
    """Starts the thread that serves copies, or follows the master."""
    if isinstance(settings, Master):
        begin_master(engine, settings)
        return
    engine.guests.get(ReplicaService, lambda: ReplicaService(engine, settings)).start()
    if settings.broker is not None:
        engine.guests.get(BrokerService, lambda: BrokerService(engine, settings)).start()
