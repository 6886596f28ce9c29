"""The batch source: one partition for each part of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rocketstore.spark.planning import plan_batch, read
from rocketstore.spark.read_options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Part", "Reader"]


class Part(InputPartition):
    """`value`: (scan of a part of the log, wanted queue offsets); files are opened where it is read."""


class Reader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        scans, bounds = plan_batch(self.options)
        return [Part((scan, bounds)) for scan in scans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of None out of no partition.
        if partition.value is None:
            return iter(())
        scan, bounds = partition.value
        return read(scan, self.options, bounds)
