"""The sink of a bulk load: each task writes a store of its own, the driver's commit names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter

from rocketstore import ConfigError, StoreConfig
from rocketstore.spark.errors import SparkFaceError, bad_option, coded_errors
from rocketstore.spark.sink.bad_rows import BadRows
from rocketstore.spark.sink.cleanup import remove_orphans
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.sink.shard_writing import write_shard
from rocketstore.spark.sink.shards import (
    Shard,
    abandon_shards,
    commit_shards,
    make_run,
    shard_paths,
)
from rocketstore.spark.sink.sink import (
    CountedBatches,
    TaskWriter,
    check_batch,
    check_creates,
    log_left_out,
    routing_of,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["ShardWriter"]


class ShardWriter(TaskWriter[Shard], DataSourceArrowWriter):
    """One batch write into a directory of shards."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        check_batch(options, overwrite)
        super().__init__(schema, options)
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
        with coded_errors("RS_WRITE_FAILED", options.path):
            make_run(options.path, self.run)

    def make(
        self, batches: CountedBatches, partition: int, bad_rows: BadRows | None
    ) -> Shard | None:
        options = self.options
        if options.shards and partition >= options.shards:
            raise bad_option(
                "shards",
                options.shards,
                f"the frame has more partitions, this is number {partition}; call "
                f"repartition({options.shards}) or coalesce({options.shards}) before the write",
            )
        return write_shard(
            batches,
            Path(options.path),
            self.run,
            partition,
            routing_of(options),
            options.segment_bytes,
            bad_rows,
        )

    def commit(self, messages: list[Any]) -> None:
        options = self.options
        writer, version = self.name
        with coded_errors("RS_WRITE_FAILED", options.path):
            commit_shards(
                options.path,
                self.run,
                self.made(messages),
                writer=options.app_id,
                version=version,
                lock_timeout_s=options.lock_timeout_s,
                skip_reused=options.skip_reused,
            )
        self.settle(messages, writer, version, given_up=False)
        log_left_out(options, messages)
        remove_orphans(options.path, bad_rows=options.bad_rows_path)

    def abort(self, messages: list[Any]) -> None:
        self.settle(messages, *self.name, abandon_shards(self.options.path, self.run))

    @property
    def name(self) -> tuple[str, int]:
        """Writer and version of this write."""
        options = self.options
        return options.app_id or f"batch-{self.run}", options.version or 0
