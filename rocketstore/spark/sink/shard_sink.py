"""The sink of a bulk load: each task writes a store of its own, the driver's commit names them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from rocketstore import ConfigError, StoreConfig
from rocketstore.spark.errors import SparkFaceError, coded_errors
from rocketstore.spark.option_checks import bad_option
from rocketstore.spark.sink.bad_rows import BadRows, keep_bad_rows, settle_bad_rows
from rocketstore.spark.sink.cleanup import remove_orphans
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.sink.shard_writing import write_shard
from rocketstore.spark.sink.shards import abandon_shards, commit_shards, shard_paths
from rocketstore.spark.sink.sink import (
    CountedBatches,
    TaskResult,
    check_batch,
    check_creates,
    check_schema,
    log_left_out,
    routing_of,
    writer_of_store,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["ShardWriter"]


class ShardWriter(DataSourceArrowWriter):
    """One batch write into a directory of shards. Pickled to the tasks and to the committer."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        check_batch(options, overwrite)
        check_schema(schema, options)
        if os.path.isdir(os.path.join(options.path, "commitlog")):
            raise bad_option("path", options.path, "this is a store; shards need a directory apart")
        if shard_paths(options.path) is None:
            check_creates(options, "directory of shards")
        try:
            StoreConfig(
                commit_log_file_size_bytes=options.segment_bytes,
                max_message_size_bytes=options.max_body_bytes,
            )
        except ConfigError as error:
            text = str(error).replace("max_message_size_bytes", "maxMessageSizeBytes")
            raise SparkFaceError("RS_BAD_OPTION", f"segmentBytes: {text}") from error
        self.options = options
        self.run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        options = self.options
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        if options.shards and partition >= options.shards:
            raise bad_option(
                "shards",
                options.shards,
                f"the frame has more partitions, this is number {partition}; call "
                f"repartition({options.shards}) or coalesce({options.shards}) before the write",
            )
        bad_rows = None if options.bad_rows_path is None else BadRows(options.bad_rows_path)
        try:
            batches = CountedBatches(iterator)
            shard = write_shard(
                batches,
                Path(options.path),
                self.run,
                partition,
                routing_of(options),
                options.segment_bytes,
                bad_rows,
            )
            left_out = batches.rows - (shard.rows if shard else 0)
            kept = bad_rows and bad_rows.finish()
            return TaskResult(partition, None, None, kept, shard, left_out)
        except BaseException:  # also when the task is killed by Spark
            if bad_rows is not None:
                bad_rows.abandon()
            raise

    def commit(self, messages: list[Any]) -> None:
        done = [message for message in messages if message is not None]
        done.sort(key=lambda message: message.partition)
        options = self.options
        writer, version = self.name
        with coded_errors("RS_WRITE_FAILED", options.path):
            commit_shards(
                options.path,
                self.run,
                [message.shard for message in done if message.shard is not None],
                writer=options.app_id,
                version=version,
                lock_timeout_s=options.lock_timeout_s,
                skip_reused=options.skip_reused,
            )
        for message in done:
            if message.bad_rows is not None:
                kept_by = writer_of_store(options, writer)
                keep_bad_rows(message.bad_rows, kept_by, version, message.partition)
        log_left_out(options, done)
        remove_orphans(options.path, bad_rows=options.bad_rows_path)

    def abort(self, messages: list[Any]) -> None:
        given_up = abandon_shards(self.options.path, self.run)
        for message in messages:
            if message is not None and message.bad_rows is not None:
                writer, version = self.name
                kept_by = writer_of_store(self.options, writer)
                settle_bad_rows(message.bad_rows, kept_by, version, message.partition, given_up)

    @property
    def name(self) -> tuple[str, int]:
        """Writer and version of this write."""
        options = self.options
        return options.app_id or f"batch-{self.run}", options.version or 0
