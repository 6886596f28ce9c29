"""Stores that are masters of replicas."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocketstore import Store, StoreConfig
from rocketstore.engine.open import open_engine
from rocketstore.engine.open_options import Options
from rocketstore.replication import Master
from rocketstore.replication.master.service import MasterService, begin_master
from tests.support.small_store import SMALL

__all__ = ["open_master"]


@contextmanager
def open_master(
    path: Path, options: dict[str, Any] | None = None, **settings: Any
) -> Iterator[tuple[Store, MasterService]]:
    """A small store and its master, which slaves of RocketMQ reach at a free port."""
    config = StoreConfig(**{**SMALL, **(options or {})})
    master = Master(
        **{
            "listen": "127.0.0.1:0",
            "protocol": "rocketmq",
            # A put that expects its copies waits as long as a slow machine needs.
            "replica_timeout": timedelta(minutes=2),
            # As does a slave that says nothing.
            "silence_limit": timedelta(minutes=9),
            **settings,
        }
    )
    with Store(
        open_engine(os.fspath(path), "rw", Options(config, has_replicas=True)), "rw"
    ) as store:
        yield store, begin_master(store._writing("replication"), master)
