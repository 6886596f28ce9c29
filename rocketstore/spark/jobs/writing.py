"""Frames of Spark as messages, through the sink; and how many they were."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rocketstore.spark.options import place_of
from rocketstore.writer import RESERVED_PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MESSAGE_COLUMNS", "append"]

#: What the sink takes, and the source gives under the same names.
MESSAGE_COLUMNS = ("body", "topic", "queue_id", "tags", "keys", "properties", "born_timestamp")
SHARD_KEY = "__SHARDINGKEY"


def append(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    app_id: str | None = None,
    version: int | None = None,
    **options: Any,
) -> int:
    """Appends the rows of a frame in their order; gives their number. Columns that a message has not
    are left out, and so are properties that belong to services of RocketMQ.

    Args:
        topic: of all messages, whatever the rows say.
        app_id, version: name this write, so that it is done once (`txnAppId`, `txnVersion`).
        options: further options of the sink; with `shards=n` the frame gets n partitions at most.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    if topic is not None:
        frame = frame.withColumn("topic", f.lit(topic))
    frame = frame.select([name for name in MESSAGE_COLUMNS if name in frame.columns])
    if "properties" in frame.columns:
        # Delays, transactions and the like are over: who stores a message again does not order them again.
        plain = f.map_filter("properties", lambda name, _: ~name.isin(*RESERVED_PROPERTIES))
        frame = frame.withColumn("shard_key", f.col("properties")[SHARD_KEY])
        frame = frame.withColumn("properties", plain)
    if (shards := str(options.get("shards", ""))).isdecimal():
        frame = frame.coalesce(max(1, int(shards)))
    counted = Observation()
    writer = frame.observe(counted, f.count(f.lit(1)).alias("rows")).write
    writer = writer.format("rocketstore").mode("append").option("path", place_of(path))
    if app_id is not None:
        writer = writer.options(txnAppId=app_id, txnVersion=version or 0)
    writer.options(**options).save()
    return int(counted.get["rows"])
