"""A store with messages to work on, a loop that works on them, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import rocketstore
from rocketstore import Store
from tests.support.small_store import engine_of, everything

RECORDS = "rmq_sys_rocketstore_transactions"
GROUP = "CID_RMQ_SYS_rocketstore_transactions"
#: Room for a transaction in one segment.
BIG: dict[str, Any] = {"commit_log_file_size_bytes": 1 << 16}


def open_small(path: Path, mode: Any = "rw", **options: Any) -> Store:
    return rocketstore.open(path, mode, **{**BIG, **options})


def filled(path: Path, **options: Any) -> Store:
    """Five messages in "in", and a group that has consumed one."""
    store = open_small(path, **options)
    for n in range(5):
        store.writer("in").put(b"%d" % n)
    store.flush()
    with store.consumer("in", group="work") as consumer:
        consumer.poll(1)
        consumer.commit()
    return store


def work(store: Store, count: int = 3) -> rocketstore.StoreTransaction:
    """Reads some, puts what came of each into one of three queues, and says how far it is."""
    with store.consumer("in", group="work") as consumer, store.transaction() as tx:
        for message in consumer.poll(count):
            body = b"from " + bytes(message.body)
            tx.put("out", body, queue_id=message.queue_offset % 2, tags="t", keys=["a", "b"])
            tx.put("log", body, properties={"p": "q"}, shard_key="s", flag=3)
        tx.commit_offsets(consumer)
    return tx


def state(store: Store) -> tuple[list[bytes], list[bytes], int | None]:
    """What came of messages, in both topics, and where the group is."""
    out, log = (sorted(bytes(m.body) for m in everything(store, t)) for t in ("out", "log"))
    return out, log, engine_of(store).offsets.get("in", "work").get(0)


NOTHING: tuple[list[bytes], list[bytes], int] = ([], [], 1)
THREE = [b"from 1", b"from 2", b"from 3"]
ALL = (THREE, THREE, 4)


class Died(BaseException):
    """Stands for the end of the process."""


def died(*_: object, **__: object) -> None:
    raise Died


def record_alone(rows: Any) -> rocketstore.PutResult:
    """For `commits.append_batch`: the commit record comes to the log, and no copy."""
    return cast("rocketstore.PutResult", rows.chosen([0]).put("memory", None))
