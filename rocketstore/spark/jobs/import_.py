"""Parquet, as `export` writes it or any other with a column `body`, into a store."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from rocketstore.spark.errors import HINTS
from rocketstore.spark.jobs.system_topics import plain_rows, system_counts, warn_left_out
from rocketstore.spark.jobs.writing import append
from rocketstore.spark.paths import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["import_", "parquet"]

FILE: Final = re.compile("file:/", re.IGNORECASE)


def import_(
    session: SparkSession,
    source: str,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    app_id: str | None = None,
    version: int | None = None,
    create_store: bool = True,
    **options: Any,
) -> int:
    """Appends what Parquet files hold; gives the number of messages that were appended: none when
    this version was imported before. Where there is a column `physical_offset`, they are appended
    in its order, else in that of the files as Spark reads them. Topics of RocketMQ itself are left
    out unless `topic` gives them another; a warning says how many messages those have.

    Args:
        source: directory or file, also a URI that Spark reads.
        topic: of all messages; needed where there is no column `topic`.
        app_id, version: name this import, so that it is done once however often it is run.
        create_store: False: where there is no store, it is an error (RS_NO_STORE).
        options: further options of the sink.
    """
    if not create_store:
        options["createStore"] = False
    frame = parquet(session, source)
    if topic is None and "topic" in frame.columns:
        left_out = {row.topic: row["count"] for row in system_counts(frame)}
        warn_left_out(left_out, f"import the directory topic=… {HINTS['argument_topic']}")
        frame = plain_rows(frame)
    if "physical_offset" in frame.columns:
        # Messages of an inner batch share one.
        order = ("physical_offset", "queue_offset")
        frame = frame.orderBy(*[name for name in order if name in frame.columns])
    return append(frame, path, topic=topic, app_id=app_id, version=version, **options)


def parquet(session: SparkSession, source: str) -> DataFrame:
    """The rows of an export. Spark takes directories like `topic=007` for numbers: here they are
    text. It takes file URIs as they are: here they are decoded, as everywhere else."""
    from pyspark.sql.types import StringType, StructField, StructType

    if FILE.match(source):
        source = f"file://{local_path('source', source)}"
    found = session.read.parquet(source).schema
    fields = [
        StructField(field.name, StringType()) if field.name == "topic" else field for field in found
    ]
    return session.read.schema(StructType(fields)).parquet(source)
