"""Frames of Spark as messages, through the sink; and how many were appended."""

from __future__ import annotations

import logging
import os
import uuid
from typing import TYPE_CHECKING, Any

from rocketstore.puts import SHARD_KEY
from rocketstore.spark.errors import SparkFaceError, coded_errors
from rocketstore.spark.option_checks import bad_option
from rocketstore.spark.paths import store_path
from rocketstore.spark.sink.columns import ALIASES, COLUMNS, IGNORED
from rocketstore.spark.sink.journal import committed
from rocketstore.spark.sink.shards import committed_shards
from rocketstore.spark.sink.staging import wrong_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MESSAGE_COLUMNS", "append"]

#: Columns that Parquet of others may have for something else: taken only with this type.
TYPED = {"flag": "int", "sys_flag": "int", "headers": COLUMNS["headers"][0]}
MESSAGE_COLUMNS = (
    *("body", "topic", "queue_id", "tags", "keys", "properties", "born_timestamp"),
    *("flag", "sys_flag"),
)
#: What a frame of messages may have that is appended; the source gives no headers in its own view.
APPENDED = (*MESSAGE_COLUMNS, "headers")

#: What a frame of messages may have besides, also as an export writes it.
KNOWN = {*IGNORED, *APPENDED, "reconsume_times", "day"}

logger = logging.getLogger(__name__)


def append(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    app_id: str | None = None,
    version: int | None = None,
    **options: Any,
) -> int:
    """Appends the rows of a frame in their order; gives the number of messages that this call has
    appended: without bad rows that are dropped, 0 when the version was written before. Columns that
    a message has not are left out, and of properties what the sink leaves out.

    Args:
        topic: of all messages, whatever the rows say.
        app_id, version: name this write, so that it is done once (`txnAppId`, `txnVersion`).
        options: further options of the sink; with `shards=n` the frame gets n partitions at most.

    Raises:
        SparkFaceError: RS_BAD_OPTION: a version without a name, a topic that no message may have.
    """
    if topic is not None and (reason := wrong_topic(topic)):
        raise SparkFaceError("RS_BAD_OPTION", f"the topic of all messages: {reason}")
    if version is not None and not app_id:
        # Under a name of its own, each run would be a first one.
        raise bad_option("version", version, "needs app_id")
    from pyspark.sql import functions as f

    if topic is not None:
        frame = frame.withColumn("topic", f.lit(topic))
    for name, own in ALIASES.items():  # as the sink takes them
        if name in frame.columns and own in MESSAGE_COLUMNS and own not in frame.columns:
            frame = frame.withColumnRenamed(name, own)
    types = dict(frame.dtypes)
    unknown = [n for n, kind in types.items() if n not in KNOWN or TYPED.get(n, kind) != kind]
    if unknown:
        logger.warning("columns that no message has are left out: %s", ", ".join(unknown))
    types = {name: kind for name, kind in types.items() if TYPED.get(name, kind) == kind}
    frame = frame.select([name for name in APPENDED if name in types])
    if "properties" in frame.columns:
        frame = frame.withColumn("shard_key", f.col("properties")[SHARD_KEY])
    if (shards := str(options.get("shards", ""))).isdecimal():
        frame = frame.coalesce(max(1, int(shards)))
    place, name = store_path(path), app_id or f"batch-{uuid.uuid4()}"
    number = 0 if version is None else version
    before = max(commits_of(place, name), default=-1)
    writer = frame.write.format("rocketstore").mode("append").option("path", place)
    # Done once, whatever the source has become since: the count says whether it was.
    once = {"txnAppId": name, "txnVersion": number, "reusedVersion": "skip"}
    writer.options(**once).options(**options).save()
    return 0 if number <= before else commits_of(place, name).get(number, 0)


def commits_of(path: str, writer: str) -> dict[int, int]:
    """Messages by version of what a writer has committed to a store or a directory of shards."""
    with coded_errors("RS_READ_FAILED", path):
        return {**committed(path, writer), **committed_shards(path, writer)}
