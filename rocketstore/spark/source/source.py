"""The batch source: one partition for each part of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rocketstore.spark.errors import coded_errors
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch, read
from rocketstore.spark.source.pushdown import FiltersAskedError, conditions_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

__all__ = ["BatchReader", "FilterAsker", "LogPartition"]


class LogPartition(InputPartition):
    """`value`: (scan of a part of the log, wanted queue offsets); files are opened where it is
    read."""


class BatchReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        with coded_errors("RS_READ_FAILED", self.options.path):
            scans, bounds = plan_batch(self.options)
        return [LogPartition((scan, bounds)) for scan in scans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of None out of no partition.
        if partition.value is None:
            return iter(())
        scan, bounds = partition.value
        return read(scan, self.options, bounds)


class FilterAsker(BatchReader):
    """Asks Spark what it makes of a `where`, for `rocketstore.spark.read`. It reads nothing."""

    def pushFilters(self, filters: list[Filter]) -> NoReturn:
        """Raises FiltersAskedError, which carries the answer from a planning worker to the
        caller."""
        found = [conditions_of(one, self.options.fields) for one in filters]
        raise FiltersAskedError([condition for known in found if known for condition in known])
