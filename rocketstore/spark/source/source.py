"""Spark's readers. The batch source: one partition for each part of the log. The streaming source:
offsets are places in the log, never beyond what is on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rocketstore.spark.errors import coded_errors
from rocketstore.spark.source.group_offsets import GroupOffsets
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch, read
from rocketstore.spark.source.pushdown import FiltersAskedError, conditions_of
from rocketstore.spark.source.stream_progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

__all__ = ["BatchReader", "FilterAsker", "LogPartition", "StreamReader"]


class LogPartition(InputPartition):
    """`value`: (scan of a part of the log, wanted queue offsets); files are opened where it is
    read."""


class PartReader:
    """What both readers share: a task reads one part of the log."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of None out of no partition.
        if partition.value is None:
            return iter(())
        scan, bounds = partition.value
        return read(scan, self.options, bounds)


class BatchReader(PartReader, DataSourceReader):
    """One batch read."""

    def partitions(self) -> Sequence[InputPartition]:
        with coded_errors("RS_READ_FAILED", self.options.path):
            scans, bounds = plan_batch(self.options)
        return [LogPartition((scan, bounds)) for scan in scans]


class FilterAsker(BatchReader):
    """Asks Spark what it makes of a `where`, for `rocketstore.spark.read`. It reads nothing."""

    def pushFilters(self, filters: list[Filter]) -> NoReturn:
        """Raises FiltersAskedError, which carries the answer from a planning worker to the
        caller."""
        found = [conditions_of(one, self.options.fields) for one in filters]
        raise FiltersAskedError([condition for known in found if known for condition in known])


class StreamReader(PartReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query's reader. Offsets come from a `Progress`, which is made at the first use:
    tasks have a reader too, which only reads."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._progress: Progress | None = None
        group = options.group
        self._group = None if group is None else GroupOffsets(options.path, group)

    @property
    def progress(self) -> Progress:
        if self._progress is None:
            self._progress = Progress(self.options)
        return self._progress

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_progress": None, "_group": None}

    def initialOffset(self) -> dict[str, Any]:
        with self._reading():
            return self.progress.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_rows is not None:
            return ReadMaxRows(self.options.max_rows)
        return ReadMaxBytes(self.options.max_bytes or 256 << 20)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        everything = isinstance(limit, ReadAllAvailable)
        with self._reading():
            end = self.progress.latest(start, unlimited=everything)
        if self._group is not None:
            self._group.publish(self.progress, start)
        return end

    def reportLatestOffset(self) -> dict[str, Any]:
        with self._reading():
            return self.progress.end()

    def prepareForTriggerAvailableNow(self) -> None:
        with self._reading():
            self.progress.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._reading():
            scans, bounds = self.progress.parts(start, end)
        return [LogPartition((scan, bounds)) for scan in scans]

    def _reading(self) -> AbstractContextManager[None]:
        return coded_errors("RS_READ_FAILED", self.options.path)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()
            self._progress = None
