"""The sink: tasks stage frames, one committer on the driver's machine appends them."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import rocketstore
from rocketstore import StoreLockedError
from rocketstore.spark.errors import HINTS, SparkFaceError, bad_option, coded_errors
from rocketstore.spark.sink.bad_rows import BadRows, settle_bad_rows
from rocketstore.spark.sink.cleanup import abandon, remove_orphans
from rocketstore.spark.sink.columns import ALIASES, COLUMNS, IGNORED
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import Staged, file_name, sink_directory
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.sink.shards import Shard, refuse_shards
from rocketstore.spark.sink.staging import Routing, stage, wrong_topic
from rocketstore.spark.stores import store_uuid

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "BatchWriter",
    "CountedBatches",
    "StreamWriter",
    "TaskResult",
    "TaskWriter",
    "check_batch",
    "check_creates",
    "check_schema",
    "log_left_out",
    "routing_of",
    "staging_of",
]

logger = logging.getLogger(__name__)

#: What a task makes of its rows.
Made = TypeVar("Made", Staged, Shard)


@dataclass
class TaskResult(WriterCommitMessage):
    """What a task has made: a staged file, or a shard; `query_id` is the streaming query's, if
    there is one; `bad_rows` the file of those that cannot be messages, `left_out` how many they
    are, kept or not."""

    partition: int
    made: Staged | Shard | None
    query_id: str | None
    bad_rows: str | None
    left_out: int


class CountedBatches:
    """A task's batches, and how many rows have come."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def log_left_out(options: WriteOptions, messages: Sequence[TaskResult | None]) -> None:
    """Logs how many rows were no messages, after the others are written."""
    count = sum(message.left_out for message in messages if message is not None)
    if count:
        where = options.bad_rows_path
        fate = "left out (badRows=drop)" if where is None else f"kept in {where} (badRows=divert)"
        logger.warning("%s: rows that cannot be messages: %d, %s", options.path, count, fate)


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Raises on the driver, before a task starts: RS_UNKNOWN_COLUMN, RS_COLUMN_TYPE, RS_NO_BODY,
    RS_NO_TOPIC, RS_BAD_OPTION."""
    if options.topic is not None and (reason := wrong_topic(options.topic)):
        raise SparkFaceError("RS_BAD_OPTION", f"option topic: {reason}")
    seen: dict[str, str] = {}
    for field in schema.fields:
        if field.name in IGNORED:
            continue
        name = ALIASES.get(field.name, field.name)
        kind = field.dataType.simpleString()
        if name not in COLUMNS:
            raise SparkFaceError(
                "RS_UNKNOWN_COLUMN",
                f"column {field.name!r} is none of {', '.join(COLUMNS)}; drop it, or put it into "
                "properties",
            )
        if name in seen:
            raise SparkFaceError(
                "RS_UNKNOWN_COLUMN", f"columns {seen[name]!r} and {field.name!r} are the same"
            )
        if kind not in COLUMNS[name]:
            raise SparkFaceError(
                "RS_COLUMN_TYPE",
                f"column {field.name!r} is {kind}, expected {' or '.join(COLUMNS[name])}",
            )
        seen[name] = field.name
    if "body" not in seen:
        raise SparkFaceError("RS_NO_BODY", f"no column body (or value) among {schema.names}")
    if options.by_key and not {"keys", "shard_key"} & set(seen):
        allowed = "needs a column key, keys or shard_key"
        raise bad_option("queueBy", "key", f"{allowed}, there are {', '.join(schema.names)}")
    if "topic" not in seen and options.topic is None:
        raise SparkFaceError("RS_NO_TOPIC", "neither a column topic nor the option topic")


def check_batch(options: WriteOptions, overwrite: bool) -> None:
    """Raises SparkFaceError: RS_NO_OVERWRITE, RS_BAD_OPTION."""
    if overwrite:
        raise SparkFaceError("RS_NO_OVERWRITE", "a log is only appended to: mode('append')")
    if options.app_id is not None and options.version is None:
        raise SparkFaceError("RS_BAD_OPTION", "txnAppId needs txnVersion in a batch write")


def routing_of(options: WriteOptions) -> Routing:
    return Routing(
        options.topic,
        options.queue_id,
        options.queues,
        options.drop_bad_rows,
        options.max_body_bytes,
        options.by_key is not False,
        options.null_is_empty,
    )


def staging_of(options: WriteOptions) -> str:
    """The directory in which all writes to this store stage their frames, and no others: the
    cleanup knows what the commits of one store need."""
    if options.staging is None:
        return os.path.join(sink_directory(options.path), "staging")
    place = f"{socket.gethostname()} {os.path.realpath(options.path)}"
    return os.path.join(options.staging, store_uuid(options.path) or file_name(place))


def make_store(options: WriteOptions, *, makes: bool = True) -> None:
    """Makes the store where there is none, if `makes`; raises SparkFaceError: RS_NO_STORE, where
    the options say that there is one."""
    path = options.path
    if os.path.isdir(os.path.join(path, "commitlog")):
        return
    check_creates(options, "store")
    if makes:
        with coded_errors("RS_WRITE_FAILED", path):
            try:
                rocketstore.open(path, "rw", deliver_delayed=False).close()
            except StoreLockedError:  # the process that has the lock is making it
                return
        # At the level that Spark shows: the path may be mistyped, or its disk not mounted. It goes
        # to standard error as it is, from a process of Spark's, also where a command writes.
        how = "createStore=false, or a command's --no-create, makes it an error"
        logger.warning("%s had no store: a new one is made (%s)", path, how)


def check_creates(options: WriteOptions, what: str) -> None:
    """Raises SparkFaceError: RS_NO_STORE, where nothing is to be made."""
    if not options.create_store:
        raise SparkFaceError(
            "RS_NO_STORE",
            f"path = {options.path!r}: there is no {what}, {HINTS['create_store']}; see whether "
            "its disk is mounted here, or write the first time without this option",
        )


class TaskWriter(Generic[Made]):
    """What all writes share. Pickled to the tasks and to the committer."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        check_schema(schema, options)
        self.options = options
        self.run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        context, where = TaskContext.get(), self.options.bad_rows_path
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        partition = 0 if context is None else context.partitionId()
        bad_rows = None if where is None else BadRows(where)
        try:
            batches = CountedBatches(iterator)
            made = self.make(batches, partition, bad_rows)
            left_out = batches.rows - (made.rows if made else 0)
            kept = bad_rows and bad_rows.finish()
            return TaskResult(partition, made, query, kept, left_out)
        except BaseException:  # also when the task is killed by Spark
            if bad_rows is not None:
                bad_rows.abandon()
            raise

    def make(
        self, batches: CountedBatches, partition: int, bad_rows: BadRows | None
    ) -> Made | None:
        """What a task makes of its batches, durable; None without a message."""
        raise NotImplementedError

    def made(self, messages: Sequence[Any]) -> list[Made]:
        """What tasks have made, in the order of their partitions."""
        done = [message for message in messages if message is not None and message.made is not None]
        return [message.made for message in sorted(done, key=lambda message: message.partition)]

    def settle(
        self, messages: Sequence[Any], writer: str | None, version: int, given_up: bool
    ) -> None:
        """Keeps the bad rows of a write that is done, or that a process will finish; discards those
        of another. The name of a writer is one among those that write to other stores and keep
        their bad rows in the same directory; the same one by whatever path a store is written
        to."""
        kept_by = writer and f"{os.path.realpath(self.options.path)} {writer}"
        for message in messages:
            if message is not None and message.bad_rows is not None:
                settle_bad_rows(message.bad_rows, kept_by, version, message.partition, given_up)


class SinkWriter(TaskWriter[Staged]):
    """What a batch and a stream share."""

    def __init__(self, schema: StructType, options: WriteOptions, *, makes: bool) -> None:
        """`makes`: the store, where there is none."""
        super().__init__(schema, options)
        refuse_shards(options.path, f"{HINTS['add_shards']}, or write elsewhere")
        make_store(options, makes=makes)
        self.staging = staging_of(options)

    def make(
        self, batches: CountedBatches, partition: int, bad_rows: BadRows | None
    ) -> Staged | None:
        run = os.path.join(self.staging, self.run)
        return stage(batches, run, routing_of(self.options), bad_rows)

    def append(
        self, messages: Sequence[Any], writer: str, version: int, reuse: str = "fail"
    ) -> None:
        staged, options = self.made(messages), self.options
        if staged:
            commit(
                options.path,
                writer,
                version,
                staged,
                lock_timeout_s=options.lock_timeout_s,
                reuse="skip" if options.skip_reused else reuse,
            )
        self.settle(messages, writer, version, given_up=False)
        log_left_out(options, messages)
        remove_orphans(options.path, staging=self.staging, bad_rows=options.bad_rows_path)

    def drop(self, messages: Sequence[Any], writer: str | None, version: int) -> None:
        with coded_errors("RS_WRITE_FAILED", self.options.path):
            given_up = abandon(self.options.path, self.made(messages))
        self.settle(messages, writer, version, given_up)


class BatchWriter(SinkWriter, DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        check_batch(options, overwrite)
        super().__init__(schema, options, makes=True)
        # Without a name of the caller's, a second run is a second write.
        self.writer = options.app_id or f"batch-{uuid.uuid4()}"
        self.version = 0 if options.version is None else options.version

    def commit(self, messages: list[Any]) -> None:
        self.append(messages, self.writer, self.version)

    def abort(self, messages: list[Any]) -> None:
        self.drop(messages, self.writer, self.version)


class StreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """One micro-batch of a streaming query: Spark makes a writer for each."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        if overwrite:
            raise SparkFaceError("RS_NO_OVERWRITE", "a log is only appended to: outputMode append")
        if options.shards is not None:
            raise bad_option("shards", options.shards or "auto", "only in a batch")
        if options.version is not None:
            raise SparkFaceError("RS_BAD_OPTION", "txnVersion is the batch's number in a stream")
        super().__init__(schema, options, makes=False)

    def commit(self, messages: list[Any], batchId: int) -> None:
        if batchId == 0:  # later on it is there, or its disk is not
            make_store(self.options)
        writer = self.writer_of(messages)
        if writer is None:
            if any(m is not None and (m.made or m.bad_rows) for m in messages):
                raise SparkFaceError("RS_NO_QUERY_ID", "the query has no id: give txnAppId")
            return
        # A micro-batch that is tried again is the same input; its rows may be others.
        self.append(messages, writer, batchId, reuse="retry")

    def abort(self, messages: list[Any], batchId: int) -> None:
        self.drop(messages, self.writer_of(messages), batchId)

    def writer_of(self, messages: Sequence[Any]) -> str | None:
        queries = {m.query_id for m in messages if m is not None and m.query_id}
        return self.options.app_id or next(iter(queries), None)
