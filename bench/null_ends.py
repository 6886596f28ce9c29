"""A data source of Spark whose work costs nothing: what a source or a sink in Python takes at least."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from rocketstore.spark.data_source import RocketStoreDataSource

__all__ = ["NullEnds"]


class NullReader(DataSourceReader):
    """As many partitions as a store has, each the first batch of the store again and again."""

    def __init__(self, real: Any, count: int) -> None:
        self._real = real
        self._count = count

    def partitions(self) -> Sequence[InputPartition]:
        real = self._real.partitions()
        each = self._count // len(real)
        return [InputPartition((real[0], each)) for _ in real]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        first, rows = partition.value
        batch = next(iter(self._real.read(first)))
        return itertools.repeat(batch, max(1, rows // batch.num_rows))


class NullWriter(DataSourceArrowWriter):
    """Reads its batches to their end."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class NullEnds(DataSource):
    """`format("null")`. Options of a read: those of `rocketstore`, and `messages`."""

    @classmethod
    def name(cls) -> str:
        return "null"

    def _real(self) -> RocketStoreDataSource:
        options = {name: value for name, value in self.options.items() if name != "messages"}
        return RocketStoreDataSource(options)

    def schema(self) -> str:
        return self._real().schema()

    def reader(self, schema: Any) -> NullReader:
        return NullReader(self._real().reader(schema), int(self.options["messages"]))

    def writer(self, schema: Any, overwrite: bool) -> NullWriter:
        return NullWriter()
