"""`rocketstore.spark.read`: a store as a frame, with a `where` that is tested where the log is
read.

Spark hands filters to a source while it plans a query. What the source does with them is kept with
the *frame*, though, and not with the query (Spark 4.2 and 4.3): another query of the same frame, or
the other side of a join, would see the rows of the first one. So filters are only asked for, once;
what they mean goes into an option of a new frame, which then gives the same rows in every query.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Unpack

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from rocketstore.values import Wanted

__all__ = ["PUSHDOWN", "read"]

logger = logging.getLogger(__name__)

#: Spark's own setting, off by default: while it is off, it refuses readers that ask for filters.
PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"
#: Held while the setting is not the session's own: another thread would take it for that, and leave
#: it so.
ASKING: Final = threading.Lock()


def read(
    session: SparkSession,
    path: str | os.PathLike[str],
    *,
    where: str | Column | None = None,
    columns: Sequence[str] | None = None,
    view: str = "rocketstore",
    options: Mapping[str, str] | None = None,
    **wanted: Unpack[Wanted],
) -> DataFrame:
    """The messages of a store as a frame, in the order of the log.

    Rows that do not fulfil `where` do not cross to Spark, and segments that cannot hold one that
    does are not opened. That goes for conditions with `and` between them, each about one column and
    literals: `=`, `<=>`, `in`, `<`, `<=`, `>`, `>=` and `is not null` of numbers, times, topics and
    hosts; `=` and `in` of tags; `is null` and `is not null` of tags and keys. All others are tested
    by Spark, with the same rows in the end.

    The current time, where `where` speaks of it, is that of this call.

    Args:
        path: a store's directory, or the URI of an archive.
        where: SQL of Spark or a Column, about columns that are read. RocketMQ's SQL92, about
            properties, is the option `where` of the source: options={"where": "price > 10"}.
        columns: of the view, in this order; None: all of them.
        view: names of columns: "rocketstore", "kafka" or "rocketmq".
        options: further options of the source, as `failOnDataLoss`.
        wanted: what `rocketstore.scan` chooses by: topics, topic_pattern, queues, tags, times.

    Raises:
        TypeError: a name in `wanted` that means nothing.
        pyspark.errors.AnalysisException: RS_UNKNOWN_COLUMN, RS_BAD_OPTION, RS_UNKNOWN_OPTION in its
            text; a `where` that Spark does not understand. What is wrong with the path is said when
            the frame is used.
    """
    from rocketstore.spark.jobs.reading import source_options
    from rocketstore.spark.stores import store_path

    chosen = {**(options or {}), **source_options(wanted), "view": view}
    if columns is not None:
        chosen["columns"] = ",".join(columns)

    def load(**more: str) -> DataFrame:
        reader = session.read.format("rocketstore").option("path", store_path(path))
        return reader.options(**chosen, **more).load()

    if where is None:
        return load()
    conditions = ask(session, load(askFilters="true").where(where))
    frame = load() if conditions is None else load(conditions=conditions)
    return frame.where(where)


def ask(session: SparkSession, frame: DataFrame) -> str | None:
    """The conditions that Spark's planner finds in a frame which asks for filters; None when it
    finds none, or fails to hand them over. Nothing is run."""
    from rocketstore.spark.source.pushdown import answer_in

    with ASKING:
        before = session.conf.get(PUSHDOWN)
        session.conf.set(PUSHDOWN, "true")
        try:
            frame.inputFiles()  # the least that makes Spark plan
        except Exception as error:
            found = answer_in(str(error))
            if found is not None:
                return found
            if "[RS_" in str(error):
                raise
            # Spark cannot hand over every literal: its worker fails at times that datetime does not
            # know.
            logger.info("no filters are asked for: %s", error)
        finally:
            session.conf.set(PUSHDOWN, str(before))
    return None
