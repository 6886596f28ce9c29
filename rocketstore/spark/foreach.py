"""Micro-batches written by `foreachBatch`: for output modes that Spark refuses a sink in Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rocketstore.spark.errors import bad_option
from rocketstore.spark.stores import store_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["batch_writer"]


def batch_writer(
    path: str | os.PathLike[str], *, app_id: str, topic: str | None = None, **options: Any
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that appends each micro-batch to a store, once.

        counts.writeStream.outputMode("update").foreachBatch(
            spark.batch_writer("data/orders", topic="counts", app_id="totals")
        )

    Args:
        path: the store's directory.
        app_id: name of this write. With a topic, the topic is a part of it: writers to several
            topics may have one name.
        topic: of all messages, whatever their rows say.
        options: further options of the sink.

    Raises:
        SparkFaceError: RS_BAD_OPTION: no name, or an option that this function gives itself.
    """
    if not app_id:
        raise bad_option("app_id", app_id, "a name for this write, which stays the same")
    for name in options:
        if name.lower() in ("path", "topic", "txnappid", "txnversion"):
            raise bad_option(name, options[name], "this function gives it: path, topic, app_id")
    name = app_id if topic is None else f"{app_id}-{topic}"
    given = {**options, "path": store_path(path), "txnAppId": name}
    if topic is not None:
        given["topic"] = topic

    def write(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("rocketstore").mode("append")
        writer.options(**given, txnVersion=number).save()

    return write
