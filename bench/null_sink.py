"""A data source of Spark that takes rows and does nothing with them: what a sink in Python costs at least."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

__all__ = ["NullSink"]


class NullWriter(DataSourceArrowWriter):
    """Reads its batches to their end."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class NullSink(DataSource):
    """`format("null")`."""

    @classmethod
    def name(cls) -> str:
        return "null"

    def writer(self, schema: Any, overwrite: bool) -> NullWriter:
        return NullWriter()
