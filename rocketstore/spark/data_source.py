"""`format("rocketstore")`: what Spark asks for, handed to the parts that answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rocketstore.spark.schema import check_fields, ddl
from rocketstore.spark.source.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["RocketStoreDataSource"]


class RocketStoreDataSource(DataSource):
    """Topics of a store as tables and streams, and rows as messages. Options: docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "rocketstore"

    def schema(self) -> str:
        return ddl(ReadOptions.parse(self.options).fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        from rocketstore.spark.source.source import BatchReader, FilterAsker

        options = ReadOptions.parse(self.options, stream=False)
        check_fields(options.fields, schema)
        return FilterAsker(options) if options.ask_filters else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from rocketstore.spark.source.source import StreamReader

        options = ReadOptions.parse(self.options, stream=True)
        check_fields(options.fields, schema)
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from rocketstore.spark.sink.options import WriteOptions
        from rocketstore.spark.sink.shard_sink import ShardWriter
        from rocketstore.spark.sink.sink import BatchWriter

        options = WriteOptions.parse(self.options)
        kind = BatchWriter if options.shards is None else ShardWriter
        return kind(schema, options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from rocketstore.spark.sink.options import WriteOptions
        from rocketstore.spark.sink.sink import StreamWriter

        return StreamWriter(schema, WriteOptions.parse(self.options), overwrite)
