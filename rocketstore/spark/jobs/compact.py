"""The latest message of each key, in a new store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Unpack

from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.reading import load
from rocketstore.spark.jobs.system_topics import check_system_topics
from rocketstore.spark.jobs.writing import MESSAGE_COLUMNS, append
from rocketstore.spark.paths import store_path
from rocketstore.spark.sink.shards import refuse_shards

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketstore.values import Wanted

__all__ = ["compact"]


def compact(
    session: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    tombstones: bool = True,
    create_store: bool = True,
    app_id: str | None = None,
    version: int | None = None,
    **wanted: Unpack[Wanted],
) -> int:
    """Appends to `target`, of each topic and key, the last message in the log, in the order of the
    log; gives the number of those that were appended: none when this version was written before.
    Messages without a key are all kept. A message with several keys counts by all of them together.
    Topics that services use themselves are left out; a warning says how many messages those have.

    Args:
        target: another store: a log is only appended to.
        tombstones: an empty body deletes its key: it is left out, and with it all that came before.
        create_store: False: where there is no store at `target`, nothing is written.
        app_id, version: name this run, so that it is done once however often it is run.
        wanted: what `rocketstore.scan` chooses by: topics, topic_pattern, queues, tags, times.

    Raises:
        SparkFaceError: RS_BAD_OPTION, such a topic is named, the target is the store itself,
            or the source holds shards, which have no order, so that a key has no last message;
            RS_NO_STORE.
    """
    if os.path.realpath(store_path(path)) == os.path.realpath(store_path(target)):
        raise SparkFaceError(
            "RS_BAD_OPTION",
            f"target = {os.fspath(target)!r}: another store than the one that is read",
        )
    refuse_shards(
        store_path(path), "there is no last message of a key among them; name one, which is a store"
    )
    frame = load(session, path, wanted)
    check_system_topics(path, wanted, routed=False)
    from pyspark.sql import functions as f

    # Messages of an inner batch share a physical offset.
    order = ("physical_offset", "queue_offset")
    rows = frame.select(*MESSAGE_COLUMNS, *order)
    keyed = rows.where(f.col("keys").isNotNull())
    # Tasks keep one row a key already before rows go from one to another.
    last = keyed.groupBy(f.col("topic").alias("_topic"), f.col("keys").alias("_keys")).agg(
        f.max_by(f.struct(*keyed.columns), f.struct(*order)).alias("row")
    )
    last = last.select("row.*")
    if tombstones:
        last = last.where(f.length("body") > 0)
    kept = rows.where(f.col("keys").isNull()).unionByName(last)
    rows = kept.orderBy(*order)
    return append(rows, target, app_id=app_id, version=version, createStore=create_store)
