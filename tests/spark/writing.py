"""Writers as Spark makes and calls them, without a session: needs pyspark and pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.options import WriteOptions


def writer_of(root: Path, kind: str = "batch", **options: str) -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    from rocketstore.spark.sink.shard_sink import ShardWriter
    from rocketstore.spark.sink.sink import BatchWriter, StreamWriter

    schema = StructType([StructField(name, StringType()) for name in ("body", "topic")])
    given = {"path": str(root), "badRows": "divert", "lockTimeoutS": "0", **options}
    chosen = WriteOptions.parse(given)
    if kind == "stream":
        return StreamWriter(schema, chosen, False)
    return (BatchWriter if chosen.shards is None else ShardWriter)(schema, chosen, False)


def write(writer: Any, *number: int) -> None:
    """As Spark does: what cannot be committed is aborted. `number`: of a stream's batch."""
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict({"body": ["a", None], "topic": ["t", "t"]})
    messages = [writer.write(iter([batch]))]
    try:
        writer.commit(messages, *number)
    except SparkFaceError:
        writer.abort(messages, *number)
        raise
